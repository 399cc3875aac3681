package boottime

import (
	"sync/atomic"
	"time"
)

// A Deadline is a Moment that can be extended until somebody finds it passed. Once Passed has
// returned true it always does, because somebody may have acted on that. Before Set it has passed.
// Its methods are safe for concurrent use.
type Deadline struct{ at atomic.Pointer[deadline] }

type deadline struct {
	Moment
	seen bool // somebody has found it passed
}

// Set sets the deadline to m, even if it had passed.
func (d *Deadline) Set(m Moment) { d.at.Store(&deadline{Moment: m}) }

// Moment returns the moment of the deadline.
func (d *Deadline) Moment() Moment {
	if at := d.at.Load(); at != nil {
		return at.Moment
	}
	return Moment{}
}

// Left returns the time until the deadline. It is 0 or less if it has passed.
func (d *Deadline) Left() time.Duration { return d.Moment().Until() }

// Extend moves the deadline to m, unless m is earlier. It changes nothing and returns false if the
// deadline has passed.
func (d *Deadline) Extend(m Moment) bool {
	for {
		at := d.at.Load()
		switch {
		case at == nil || at.seen || at.Moment.Passed():
			return false
		case m.Sub(at.Moment) <= 0:
			return true
		case d.at.CompareAndSwap(at, &deadline{Moment: m}):
			return true
		}
	}
}

// Passed reports whether the deadline has passed.
func (d *Deadline) Passed() bool {
	for {
		at := d.at.Load()
		switch {
		case at == nil || at.seen:
			return true
		case !at.Moment.Passed():
			return false
		case d.at.CompareAndSwap(at, &deadline{at.Moment, true}):
			return true
		}
	}
}
