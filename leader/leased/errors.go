package leased

import (
	"errors"

	"github.com/pglatch/pglatch/lease"
)

// permanent reports whether a retry cannot succeed: somebody must set up the store, grant rights on it, or
// change the request.
func permanent(err error) bool {
	return matches(err, lease.ErrNotReady, lease.ErrInvalid, lease.ErrClosed)
}

// over reports whether err proves that a lease has ended.
func over(err error) bool { return matches(err, lease.ErrStale, lease.ErrExpired, lease.ErrNotFound) }

// nothingDone reports whether err proves that a request changed nothing.
func nothingDone(err error) bool {
	return matches(err, lease.ErrHeld, lease.ErrInvalid, lease.ErrBusy, lease.ErrNotReady, lease.ErrClosed)
}

func matches(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
