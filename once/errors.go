package once

import (
	"errors"
	"fmt"
	"time"
)

// The conditions that this package reports. Each has a type with its details.
var (
	ErrTaken   = errors.New("tick is taken")
	ErrWindow  = errors.New("tick is out of the window")
	ErrLost    = errors.New("claim lost")
	ErrInvalid = errors.New("invalid argument")
	// ErrBusy: nothing was done, and another try may succeed. In a transaction, use another
	// transaction.
	ErrBusy = errors.New("store is busy")
	// ErrNotReady: the store is not set up, or the role lacks rights on it.
	ErrNotReady = errors.New("store is not ready")
)

// A TakenError says which node runs or ran a tick.
type TakenError struct{ Record }

func (e *TakenError) Error() string {
	what := map[State]string{Running: "runs", Ran: "was run", Failed: "was run, and failed"}[e.State]
	node := e.Node
	if node == "" {
		node = "another"
	}
	return fmt.Sprintf("once: %s %s by %s", name(e.Job, e.Tick), what, node)
}

// Is reports whether target is ErrTaken.
func (e *TakenError) Is(target error) bool { return target == ErrTaken }

// A WindowError says by how much a tick is outside the window, by the store's clock.
type WindowError struct {
	Job    string
	Tick   time.Time
	Late   time.Duration // since the tick; negative if it is in the future
	Window time.Duration // Config.Window; if the tick is in the future, Config.Early
}

func (e *WindowError) Error() string {
	if e.Late < 0 {
		return fmt.Sprintf("once: %s comes in %v only, and may be run %v early: does the clock of this machine go ahead?", name(e.Job, e.Tick), -e.Late, e.Window)
	}
	return fmt.Sprintf("once: %s was %v ago, and is caught up for %v", name(e.Job, e.Tick), e.Late, e.Window)
}

// Is reports whether target is ErrWindow.
func (e *WindowError) Is(target error) bool { return target == ErrWindow }

// A LostError says that a claim ended before its run did. Another node may have run the tick again,
// or may still do so.
type LostError struct {
	Job   string
	Tick  time.Time
	Cause error // why it could not be renewed, or its end not recorded; nil if another node has the tick
}

func (e *LostError) Error() string {
	text := "once: claim on " + name(e.Job, e.Tick) + " lost"
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// An InvalidError names a field or argument, its value and the remedy.
type InvalidError struct{ Field, Value, Remedy string }

func (e *InvalidError) Error() string {
	return fmt.Sprintf("once: %s is %s: %s", e.Field, e.Value, e.Remedy)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

func name(job string, tick time.Time) string {
	return job + " of " + tick.UTC().Format(time.RFC3339Nano)
}
