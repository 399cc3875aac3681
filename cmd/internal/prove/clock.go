package prove

import (
	"fmt"
	"time"
)

const (
	clockStep   = 500 * time.Millisecond // a clock that is slewed changes less in 60 s
	clockBack   = 10 * time.Millisecond
	clockOffset = 2 * time.Second
)

// A reading is one reading of the server's clock, between two readings of ours.
type reading struct {
	sent, received time.Time     // with our monotonic clock
	server         time.Duration // since 1970
}

// offset returns the least and the greatest possible lead of the server's clock over ours. Our time is that of the first
// reading plus monotonic time, so a step of our wall clock has no effect.
func (r reading) offset(first reading) (least, most time.Duration) {
	began := time.Duration(first.sent.UnixNano())
	return r.server - began - r.received.Sub(first.sent), r.server - began - r.sent.Sub(first.sent)
}

// judgeClock compares the readings. It allows for the time that an answer took.
func judgeClock(readings []reading) (steady, near bool, step, off string) {
	steady, near = true, true
	if len(readings) == 0 {
		return false, false, "", ""
	}
	low, high := readings[0].offset(readings[0])
	for i, r := range readings {
		least, most := r.offset(readings[0])
		if least > high+clockStep || most < low-clockStep || i > 0 && r.server < readings[i-1].server-clockBack {
			steady = false
			step = fmt.Sprintf("the server's clock was set: it is now %s ours, and was %s ours before", beside(most), beside(high))
		}
		low, high = max(low, least), min(high, most)
	}
	least, most := readings[len(readings)-1].offset(readings[0])
	if least > clockOffset || most < -clockOffset {
		near = false
		off = fmt.Sprintf("the server's clock is %s ours: run NTP on both", beside(most))
	}
	return steady, near, step, off
}

// beside describes an offset in words.
func beside(offset time.Duration) string {
	if offset < 0 {
		return round(-offset).String() + " behind"
	}
	return round(offset).String() + " ahead of"
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
