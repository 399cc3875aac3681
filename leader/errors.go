package leader

import (
	"errors"
	"fmt"
	"time"
)

// The conditions that an Elector reports.
var (
	ErrNotLeader       = errors.New("not the leader")
	ErrLost            = errors.New("leadership lost")
	ErrReleased        = errors.New("leadership released")
	ErrConnection      = errors.New("backend unreachable") // or of no use; the text of what matches it says what is wrong
	ErrPermanent       = errors.New("no attempt can succeed")
	ErrPending         = errors.New("takeover under way")
	ErrShutdownTimeout = errors.New("leadership not given up in time")
	ErrDrainExceeded   = errors.New("work did not end within DrainTimeout")
	ErrGaveUp          = errors.New("election given up")
	ErrPanic           = errors.New("panic in a callback")
)

// A LostError is the cause with which a leader's context ends when leadership is
// lost.
type LostError struct {
	Election string
	Term     Term
	Held     time.Duration // how long it lasted
	Cause    error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("leadership of %s (term %v) lost after %v: %v", e.Election, e.Term, e.Held.Round(time.Millisecond), e.Cause)
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// A ConfigError names a field of a Config, its value and the remedy.
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
