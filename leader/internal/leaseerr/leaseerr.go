// Package leaseerr says what the error of a lease store means to those who own by leases.
package leaseerr

import (
	"errors"

	"github.com/pglatch/pglatch/lease"
)

// Permanent reports whether err says that no request succeeds until somebody sets the store
// up, grants rights on it, or asks for something else.
func Permanent(err error) bool {
	return matches(err, lease.ErrNotReady, lease.ErrInvalid, lease.ErrClosed)
}

// Over reports whether err says that a lease has ended for certain.
func Over(err error) bool { return matches(err, lease.ErrStale, lease.ErrExpired, lease.ErrNotFound) }

// NothingDone reports whether err says that a request changed nothing.
func NothingDone(err error) bool {
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
