package lease

import (
	"cmp"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/renew"
)

// A Moment is a point in time on this process's own clocks. These clocks cannot be set, so changes
// to the wall clock, by people or time servers, have no effect. On Linux, one of these clocks keeps
// running while the machine is suspended. The zero Moment lies far in the past.
type Moment struct{ at boottime.Moment }

// Now returns the present Moment.
func Now() Moment { return Moment{boottime.Present()} }

// Add returns the Moment that is d later.
func (m Moment) Add(d time.Duration) Moment { return Moment{m.at.Add(d)} }

// Remaining returns the time until m; 0 if m has passed.
func (m Moment) Remaining() time.Duration { return max(m.at.Until(), 0) }

// Passed reports whether m is now or in the past.
func (m Moment) Passed() bool { return m.at.Passed() }

// Time returns m as a time.Time, for context.WithDeadline and timers. These fire late if the
// machine was suspended, so call Passed where that matters.
func (m Moment) Time() time.Time { return m.at.Mono }

// Trust returns the Moment up to which a client may act on a lease. sent is the result of Now from
// just before the client sent the request that l answers. However long the answer took, the
// lease's time cannot have begun before that Moment. Trust subtracts margin from the end; 0 = a
// tenth of Remaining, negative = none.
//
// If an earlier request for the same lease yields a later Moment, that one stays valid: no renewal
// shortens a lease.
func Trust(sent Moment, l Lease, margin time.Duration) Moment {
	margin = max(cmp.Or(margin, renew.Margin(l.Remaining)), 0)
	return sent.Add(l.Remaining - margin)
}
