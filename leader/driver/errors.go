package driver

import (
	"errors"
	"fmt"
)

// The errors of a backend. Package leader exports those that its users can receive, under the same
// names.
var (
	// ErrLost means that leadership is certainly gone.
	ErrLost = errors.New("leadership lost")
	// ErrReleased means that leadership was given up in good order. It can be the cause of a
	// leader's context.
	ErrReleased = errors.New("leadership released")
	// ErrNotLeader means that the caller of a guarded operation does not lead.
	ErrNotLeader = errors.New("not the leader")
	// ErrConnection means that the backend cannot be reached or cannot be used. The text of a matching error
	// names the cause.
	ErrConnection = errors.New("backend unreachable")
	// ErrPermanent means that no attempt succeeds until somebody changes settings, rights or the store.
	ErrPermanent = errors.New("no attempt can succeed")
	// ErrPending means that an attempt is half done and continues with the next call of TryAcquire.
	ErrPending = errors.New("takeover under way")
)

// Permanent returns an error that has the text of err, and matches both err and ErrPermanent. A Backend uses
// it to mark errors that no later attempt can avoid: a wrong password, a missing table, missing rights.
// Permanent(nil) is nil.
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

// A ConfigError names a field of a configuration, its value and the remedy. It matches ErrPermanent.
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
