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
	boot  time.Duration
}

func startClock(wall, seen time.Time) clock {
	start := wall.Round(0).UTC()
	if start.Before(seen) {
		start = seen
	}
	return clock{start: start, boot: boottime.Now()}
}

func (c clock) now() time.Time { return c.start.Add(boottime.Now() - c.boot) }
