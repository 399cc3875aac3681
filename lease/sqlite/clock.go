package sqlite

import (
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

// A clock is the store's clock: the wall clock's time when the store was opened, advanced since
// then by a clock that cannot be set. It starts no earlier than the last stored time, so it
// never goes back.
type clock struct {
	start time.Time
	at    boottime.Moment // when it showed start
}

// startClock reads the wall clock and the other clock at one moment, as nearly as a busy machine
// allows. The time between the two reads is the error of all leases that still exist when the store
// is opened again.
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
