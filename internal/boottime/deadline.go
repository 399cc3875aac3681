package boottime

import "sync/atomic"

// A Deadline is a Moment that moves as long as nobody has found it passed: once Passed was true
// it stays so, because somebody may have acted on that. It passed long ago until Set. Its methods are safe for concurrent use.
type Deadline struct{ at atomic.Pointer[deadline] }

type deadline struct {
	Moment
	seen bool // somebody has found it passed
}

// Set begins anew.
func (d *Deadline) Set(m Moment) { d.at.Store(&deadline{Moment: m}) }

// Moment is when it is, or was.
func (d *Deadline) Moment() Moment {
	if at := d.at.Load(); at != nil {
		return at.Moment
	}
	return Moment{}
}

// Extend moves it to m, unless it has passed.
func (d *Deadline) Extend(m Moment) bool {
	at := d.at.Load()
	return at != nil && !at.seen && !at.Moment.Passed() && d.at.CompareAndSwap(at, &deadline{Moment: m})
}

// Passed reports whether it has come.
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
