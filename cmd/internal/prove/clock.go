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

// offset is how far the server's clock can be ahead of ours. Ours is continued from the first reading by the
// monotonic clock, so that a step of ours does not count.
func (r reading) offset(first reading) (least, most time.Duration) {
	began := time.Duration(first.sent.UnixNano())
	return r.server - began - r.received.Sub(first.sent), r.server - began - r.sent.Sub(first.sent)
}

// judgeClock compares the readings. The time of a slow answer counts for the server.
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
			step = fmt.Sprintf("the server's clock was set: it is now %s ours, and was %s it", beside(most), beside(high))
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

// beside says where a clock is with this offset.
func beside(offset time.Duration) string {
	if offset < 0 {
		return round(-offset).String() + " behind"
	}
	return round(offset).String() + " ahead of"
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
