package renew

import (
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
)

// A Comeback decides when a holder asks again for a right that ended early. If the store is too slow for
// the renewals, each new right adds to its work, and ends early too. Without growing pauses no right
// would last again.
//
// The first early end has no pause, because it usually has another cause. Only a right that lasted for
// Steady ends the count. A right that only began proves nothing.
type Comeback struct {
	First, Longest time.Duration // the pauses double, from First to Longest
	Steady         time.Duration // a right that lasted less ended early

	early int // consecutive
}

// Comeback returns the Comeback of these times.
func (t Times) Comeback() Comeback {
	return Comeback{First: t.Duration / 5, Longest: 8 * t.Duration, Steady: 4 * t.Duration}
}

// Lost returns the pause after the loss of a right.
func (c *Comeback) Lost(lasted time.Duration) time.Duration {
	if c.Lasted(lasted) {
		return 0
	}
	return c.next(c.Longest)
}

// Lasted reports whether a right that ended, for whatever reason, lasted for Steady. If so, the count ends.
func (c *Comeback) Lasted(d time.Duration) bool {
	if d < c.Steady {
		return false
	}
	c.early = 0
	return true
}

// Failed returns the pause after an attempt to get the right that took too long. It is shorter than
// that after a loss: the store may also be out of reach, and nobody adds to its work then.
func (c *Comeback) Failed() time.Duration { return c.next(c.Longest / 2) }

func (c *Comeback) next(longest time.Duration) time.Duration {
	if c.early++; c.early == 1 {
		return 0
	}
	return pause.Backoff(c.early-2, c.First, longest)
}

// Early returns how many rights in a row ended early or came too late.
func (c *Comeback) Early() int { return c.early }

// A SlowError is the report that rights keep ending early because the store answers too slowly.
type SlowError struct {
	Took     time.Duration // by the slowest answer, so far if it has not come
	Duration time.Duration // of the right
}

func (e *SlowError) Error() string {
	return fmt.Sprintf("the store took %v to answer, and LeaseDuration is %v: raise LeaseDuration, or give the store less to do",
		e.Took.Round(time.Millisecond), e.Duration)
}
