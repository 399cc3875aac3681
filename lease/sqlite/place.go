package sqlite

import (
	"time"

	"github.com/pglatch/pglatch/lease/internal/rules"
)

// A place is a name's entry in the table due, with which a sweep finds its work without reading the
// rest. Each name has one place. Operations leave it unchanged as long as it is early enough. If a
// sweep finds a name too early, it moves the name to the right place.
type place struct {
	swept bool  // a sweep saw that it had ended, and counted it: at is when it could be granted, and no sweep looks until a retention later
	at    int64 // nanoseconds: look at it then
}

// releasedLate is how long a released name may wait for a sweep. So the release of a lease of a few
// minutes need not move the name. That move took a seventh of the time of a cycle on a new name.
// With a longer Retention, this does not delay its removal.
const releasedLate = 5 * time.Minute

// placeFor returns the place of a name whose row an operation has changed.
func placeFor(old *record, row *rules.Row, now time.Time) place {
	want, latest := nanoseconds(now), nanoseconds(now.Add(releasedLate))
	if live(row) {
		want = nanoseconds(row.ExpiresAt)
		latest = want
	}
	if old != nil && !old.place.swept && old.place.at <= latest && old.place.at != 0 {
		return old.place
	}
	return place{at: want}
}

// placeAfterSweep returns the place of a name that a sweep has read and kept.
func placeAfterSweep(row *rules.Row) place {
	if live(row) {
		return place{at: nanoseconds(row.ExpiresAt)}
	}
	end := row.EndedAt()
	if available := row.AvailableAt(); available.After(end) {
		end = available
	}
	return place{swept: true, at: nanoseconds(end)}
}

// periodLength is the resolution of the counts of live leases by their end. A sweep could not read
// all leases to count them.
const periodLength = 10 * time.Second // as in the schema

func period(t time.Time) int64 { return nanoseconds(t) / int64(periodLength) }

// A tally counts live leases by the period in which they end.
type tally map[int64]int64

// held returns how many leases end at now or later. It cannot distinguish those of the present
// period, and counts all of them.
func (c tally) held(now time.Time) int {
	n := int64(0)
	for p, leases := range c {
		if p >= period(now) {
			n += leases
		}
	}
	return int(max(n, 0))
}
