package boottime

import "time"

// A Moment is a time of this process on two clocks that nobody sets. If the two differ,
// the clock that kept running while the machine was suspended counts. A period that ends
// at a Moment ends when the first clock reaches it. In a synctest bubble, only the clock
// of package time is simulated. The zero Moment is long past.
type Moment struct {
	Mono time.Time     // package time's clock, which stands still during a suspension
	Boot time.Duration // Now's clock, which runs on if the system has such a clock
}

// Present returns the present Moment.
func Present() Moment { return Moment{Mono: time.Now(), Boot: Now()} }

// Add returns the Moment that is d later.
func (m Moment) Add(d time.Duration) Moment {
	return Moment{Mono: m.Mono.Add(d), Boot: m.Boot + d}
}

// Until returns the time until m. It is negative if m has passed.
func (m Moment) Until() time.Duration { return min(time.Until(m.Mono), m.Boot-Now()) }

// Since returns the time since m. It is negative if m is in the future.
func (m Moment) Since() time.Duration { return max(time.Since(m.Mono), Now()-m.Boot) }

// Passed reports whether m has passed.
func (m Moment) Passed() bool { return m.Until() <= 0 }

// Sub returns the time from u to m.
func (m Moment) Sub(u Moment) time.Duration { return max(m.Mono.Sub(u.Mono), m.Boot-u.Boot) }
