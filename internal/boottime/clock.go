package boottime

import (
	"sync/atomic"
	"time"
)

// A Clock returns the time of the function Now, to a millisecond, without a system call for each
// read. The zero Clock is ready for use. It is safe for concurrent use.
type Clock struct{ last atomic.Pointer[reading] }

// A reading is one reading of both clocks.
type reading struct {
	at   time.Time // wall clock and CLOCK_MONOTONIC
	boot time.Duration
}

const (
	// maxAge bounds the drift between clocks of different speed.
	maxAge = 10 * time.Millisecond
	// maxJump is how far the wall clock may deviate from CLOCK_MONOTONIC. When the machine wakes
	// from suspension, the wall clock jumps as CLOCK_BOOTTIME does.
	maxJump = time.Millisecond
)

// At returns the same time as the function Now, for a caller that has just called time.Now.
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

// readBoth reads both clocks within maxJump. If the goroutine is preempted between the two reads,
// it tries again: otherwise the time of the preemption would count as time that has passed.
func readBoth() *reading {
	for {
		r := &reading{at: time.Now(), boot: Now()}
		if time.Since(r.at) < maxJump {
			return r
		}
	}
}

// holds reports whether a reading is still valid, after the given times have passed on
// CLOCK_MONOTONIC and on the wall clock.
func holds(passed, wall time.Duration) bool {
	return passed < maxAge && (wall-passed).Abs() < maxJump
}
