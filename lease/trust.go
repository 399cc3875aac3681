package lease

import (
	"cmp"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

// marginPart of what remains is the default margin, for clocks of different rates.
const marginPart = 10

// A Moment is a time on this process's own clocks: they are never set, so what
// people and time servers do to the wall clock changes nothing, and on Linux one of
// them runs on while the machine is suspended. The zero Moment is long past.
type Moment struct{ at boottime.Moment }

// Now returns the present Moment.
func Now() Moment { return Moment{boottime.Present()} }

// Add returns the Moment that is d later.
func (m Moment) Add(d time.Duration) Moment { return Moment{m.at.Add(d)} }

// Remaining is how long it is until m; 0 if m has passed.
func (m Moment) Remaining() time.Duration { return max(m.at.Until(), 0) }

// Passed reports whether m has come.
func (m Moment) Passed() bool { return m.at.Passed() }

// Time is m for context.WithDeadline and timers. They run late if the machine was
// suspended, so look at Passed where it matters.
func (m Moment) Time() time.Time { return m.at.Mono }

// Trust returns the Moment until which a client may act on a lease. sent is Now from
// right before the client sent the request that was answered with l: the store cannot
// have counted from an earlier moment, however long the answer was on its way. margin
// is kept free at the end; 0 = a tenth of what remained, negative = none.
//
// If an earlier request for the same lease is trusted for longer, that stays good: no
// renewal shortens a lease.
func Trust(sent Moment, l Lease, margin time.Duration) Moment {
	margin = max(cmp.Or(margin, l.Remaining/marginPart), 0)
	return sent.Add(l.Remaining - margin)
}
