package sqlite

import (
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

// A clock is the store's: the wall clock when the store was opened, and from there a
// clock that nobody sets. It does not start before the last time that is stored, so
// it never goes back.
type clock struct {
	start time.Time
	at    boottime.Moment // when it showed start
}

// startClock reads the wall clock and the other one at one moment, as near as a
// machine that has other things to do lets it: what lies between them is the error of
// all leases that are still there when the store is opened again.
func startClock(wall func() time.Time, seen time.Time) clock {
	var c clock
	for best, try := time.Duration(-1), 0; try < clockReadings; try++ {
		before := boottime.Present()
		start := wall()
		took := before.Since()
		if best < 0 || took < best {
			best = took
			c = clock{start: start.Round(0).UTC(), at: before.Add(took / 2)}
		}
	}
	if c.start.Before(seen) {
		c.start = seen
	}
	return c
}

const clockReadings = 5

func (c clock) now() time.Time { return c.start.Add(c.at.Since()) }
