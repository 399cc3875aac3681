package driver

import (
	"errors"
	"fmt"
)

// The conditions that a backend reports. Package leader has those that users meet under the
// same names.
var (
	// ErrLost: leadership is gone for certain.
	ErrLost = errors.New("leadership lost")
	// ErrReleased: leadership was given up in good order; a cause of a leader's context.
	ErrReleased = errors.New("leadership released")
	// ErrNotLeader: a guarded operation was called by who does not lead.
	ErrNotLeader = errors.New("not the leader")
	// ErrConnection: the backend cannot be reached, or is of no use; the text of what matches it says what is wrong.
	ErrConnection = errors.New("backend unreachable")
	// ErrPermanent: no attempt succeeds until somebody changes settings, rights or the store.
	ErrPermanent = errors.New("no attempt can succeed")
	// ErrPending: an attempt is half done and goes on with the next call of TryAcquire.
	ErrPending = errors.New("takeover under way")
)

// Permanent returns an error with the text of err that matches ErrPermanent, and err.
// A Backend marks with it what no later attempt mends: a wrong password, a missing
// table, rights that were not granted. nil stays nil.
func Permanent(err error) error {
	if err == nil || errors.Is(err, ErrPermanent) {
		return err
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }

func (e *permanentError) Is(target error) bool { return target == ErrPermanent }

func (e *permanentError) Unwrap() error { return e.err }

// A ConfigError names a field of a configuration, its value and the remedy. It matches
// ErrPermanent.
type ConfigError struct {
	Field  string
	Value  any
	Remedy string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("leader: %s is %v: %s", e.Field, e.Value, e.Remedy)
}

// Is reports whether target is ErrPermanent.
func (e *ConfigError) Is(target error) bool { return target == ErrPermanent }
