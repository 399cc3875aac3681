package boottime

import "time"

// A Moment is a time of this process on two clocks that nobody sets. Where they
// differ, the one that ran on while the machine was suspended counts: what ends at a
// Moment ends by the first clock that reaches it. A synctest bubble moves the clock of
// package time, and the other not. The zero Moment is long past.
type Moment struct {
	Mono time.Time     // package time's clock, which stands still in a suspension
	Boot time.Duration // Now's, which does not, where the system has such a clock
}

// Present returns the present Moment.
func Present() Moment { return Moment{Mono: time.Now(), Boot: Now()} }

// Add returns the Moment that is d later.
func (m Moment) Add(d time.Duration) Moment {
	return Moment{Mono: m.Mono.Add(d), Boot: m.Boot + d}
}

// Until is how long it is until m; negative if m has passed.
func (m Moment) Until() time.Duration { return min(time.Until(m.Mono), m.Boot-Now()) }

// Since is how long ago m was; negative if it is to come.
func (m Moment) Since() time.Duration { return max(time.Since(m.Mono), Now()-m.Boot) }

// Passed reports whether m has come.
func (m Moment) Passed() bool { return m.Until() <= 0 }

// Sub is the time from u to m.
func (m Moment) Sub(u Moment) time.Duration { return max(m.Mono.Sub(u.Mono), m.Boot-u.Boot) }
