package leased

import (
	"errors"

	"github.com/pglatch/pglatch/lease"
)

// permanent reports whether err says that no request succeeds until somebody sets the store
// up, grants rights on it, or asks for something else.
func permanent(err error) bool {
	return matches(err, lease.ErrNotReady, lease.ErrInvalid, lease.ErrClosed)
}

// over reports whether err says that a lease has ended for certain.
func over(err error) bool { return matches(err, lease.ErrStale, lease.ErrExpired, lease.ErrNotFound) }

// nothingDone reports whether err says that a request changed nothing.
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
