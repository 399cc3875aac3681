package lease

import (
	"cmp"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/renew"
)

// A Moment is a point in time on this process's own clocks. Nobody sets these clocks, so changes to
// the wall clock, by people or time servers, have no effect. On Linux, one of them keeps running
// while the machine is suspended. The zero Moment is long past.
type Moment struct{ at boottime.Moment }

// Now returns the present Moment.
func Now() Moment { return Moment{boottime.Present()} }

// Add returns the Moment that is d later.
func (m Moment) Add(d time.Duration) Moment { return Moment{m.at.Add(d)} }

// Remaining returns the time until m; 0 if m has passed.
func (m Moment) Remaining() time.Duration { return max(m.at.Until(), 0) }

// Passed reports whether m has come.
func (m Moment) Passed() bool { return m.at.Passed() }

// Time returns m for context.WithDeadline and timers. They fire late if the machine was suspended,
// so check Passed where it matters.
func (m Moment) Time() time.Time { return m.at.Mono }

// Trust returns the Moment until which a client may act on a lease. Pass as sent the result of Now
// from right before the client sent the request that l answers. The store cannot have counted from
// an earlier moment, however long the answer took. Trust subtracts margin at the end; 0 = a tenth
// of Remaining, negative = none.
//
// If an earlier request for the same lease yields a later Moment, that one stays valid: no renewal
// shortens a lease.
func Trust(sent Moment, l Lease, margin time.Duration) Moment {
	margin = max(cmp.Or(margin, renew.Margin(l.Remaining)), 0)
	return sent.Add(l.Remaining - margin)
}
