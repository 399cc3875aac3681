package boottime

import (
	"sync/atomic"
	"time"
)

// A Clock tells the time of Now, to a millisecond, without a system call for each
// look. The zero Clock is ready for use, by any goroutine.
type Clock struct{ last atomic.Pointer[reading] }

// A reading is one look at both clocks.
type reading struct {
	at   time.Time // wall clock and CLOCK_MONOTONIC
	boot time.Duration
}

const (
	// maxAge bounds what clocks of different speed make of a reading.
	maxAge = 10 * time.Millisecond
	// maxJump is how far the wall clock may run from CLOCK_MONOTONIC: when the machine
	// wakes from suspension, it jumps as CLOCK_BOOTTIME does.
	maxJump = time.Millisecond
)

// Now is the time since some fixed moment, that of the function Now.
func (c *Clock) Now() time.Duration { return c.At(time.Now()) }

// At is Now for a caller who has just called time.Now.
func (c *Clock) At(now time.Time) time.Duration {
	if r := c.last.Load(); r != nil {
		passed := now.Sub(r.at)
		if holds(passed, time.Duration(now.UnixNano()-r.at.UnixNano())) {
			return r.boot + passed
		}
	}
	r := readBoth()
	c.last.Store(r)
	return r.boot - r.at.Sub(now)
}

// readBoth looks at both clocks within maxJump. Who is kept from the processor between the two
// looks tries again: the time that it was kept would count as time that has passed.
func readBoth() *reading {
	for {
		r := &reading{at: time.Now(), boot: Now()}
		if time.Since(r.at) < maxJump {
			return r
		}
	}
}

// holds reports whether a reading still tells the time, when so much has passed on
// CLOCK_MONOTONIC and on the wall clock since.
func holds(passed, wall time.Duration) bool {
	return passed < maxAge && (wall-passed).Abs() < maxJump
}
