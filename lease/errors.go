package lease

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The conditions that a Store reports. If an error matches one of them, nothing was done. Each of
// the first six has an error type with its details. lease/leasehttp carries all details to its
// clients.
var (
	ErrHeld     = errors.New("lock is held")
	ErrStale    = errors.New("claim is not the current one")
	ErrExpired  = errors.New("lease expired")
	ErrNotFound = errors.New("lock unknown")
	ErrInvalid  = errors.New("invalid request")
	ErrBusy     = errors.New("store is busy")      // try again
	ErrNotReady = errors.New("store is not ready") // somebody has to set it up, or to grant rights on it
	ErrClosed   = errors.New("store is closed")    // by this program
)

// NothingDone reports whether err matches one of the conditions above, such as ErrHeld.
func NothingDone(err error) bool {
	return errors.Is(err, ErrHeld) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrBusy) || errors.Is(err, ErrNotReady) || errors.Is(err, ErrClosed) || IsOver(err)
}

// IsOver reports whether err proves that the lease of a claim has ended: it matches ErrStale,
// ErrExpired or ErrNotFound.
func IsOver(err error) bool {
	return errors.Is(err, ErrStale) || errors.Is(err, ErrExpired) || errors.Is(err, ErrNotFound)
}

// A HeldError says which holder has the lease.
type HeldError struct {
	Name      string
	Holder    string        // "" if nobody has a lease, but a LockDelay or MinHold is not over
	Remaining time.Duration // until the name can be granted, including LockDelay and MinHold, if nothing is renewed or released
	Retry     time.Duration // when to try again: random, so that many clients do not retry at once
}

func (e *HeldError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("lease: %s is kept for another %v", e.Name, e.Remaining)
	}
	return fmt.Sprintf("lease: %s is held by %s for another %v", e.Name, e.Holder, e.Remaining)
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// A StaleError lists the parts of a claim that did not match.
type StaleError struct {
	Name              string
	Holder, ID, Token bool // did not match
	Released          bool // all matched, but the lease was released
}

func (e *StaleError) Error() string {
	if e.Released {
		return fmt.Sprintf("lease: stale claim on %s: it was released", e.Name)
	}
	var wrong []string
	for _, part := range []struct {
		name  string
		wrong bool
	}{{"holder", e.Holder}, {"id", e.ID}, {"token", e.Token}} {
		if part.wrong {
			wrong = append(wrong, part.name)
		}
	}
	return fmt.Sprintf("lease: stale claim on %s: %s not the current one", e.Name, strings.Join(wrong, ", "))
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// An ExpiredError says when a lease ended.
type ExpiredError struct {
	Name string
	At   time.Time // by the store's clock
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("lease: lease on %s expired at %s", e.Name, e.At.Format(time.RFC3339Nano))
}

// Is reports whether target is ErrExpired.
func (e *ExpiredError) Is(target error) bool { return target == ErrExpired }

// A NotFoundError names a lock that a store does not know.
type NotFoundError struct{ Name string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("lease: nothing known of %s", e.Name) }

// Is reports whether target is ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// An InvalidError names a field of a request, its value and the remedy.
type InvalidError struct {
	Field  string
	Value  string
	Remedy string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("lease: %s is %s: %s", e.Field, e.Value, e.Remedy)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// A BusyError means that a store could not do the operation now. Nothing was changed.
type BusyError struct {
	Retry time.Duration // when to try again
	Cause error
}

func (e *BusyError) Error() string { return fmt.Sprintf("lease: store is busy: %v", e.Cause) }

// Is reports whether target is ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// Unwrap returns the cause.
func (e *BusyError) Unwrap() error { return e.Cause }
