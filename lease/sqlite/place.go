package sqlite

import (
	"time"

	"github.com/pglatch/pglatch/lease/internal/rules"
)

// A place is where the table due has a name: so that a sweep finds what it has to do
// without looking at the rest. Each name has one place. Operations leave it as it is as
// long as it comes early enough; a sweep puts a name that it finds too early where it
// belongs.
type place struct {
	swept bool  // a sweep saw that it had ended, and counted it: at is when it could be granted, and nobody looks until a retention later
	at    int64 // nanoseconds: look at it then
}

// releasedLate is how long a released name may wait for a sweep to look at it. So a
// release of a lease of a few minutes need not move the name, which took a seventh of the
// time of a cycle on a new name. With a longer Retention it is forgotten no later for that.
const releasedLate = 5 * time.Minute

// placeFor is where a name goes whose row an operation has changed.
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

// placeAfterSweep is where a name goes that a sweep has looked at and kept.
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

// periodLength is how exactly it is known when leases end, of which a sweep could not
// look at all.
const periodLength = 10 * time.Second // as in the schema

func period(t time.Time) int64 { return nanoseconds(t) / int64(periodLength) }

// A tally counts live leases by the period in which they end.
type tally map[int64]int64

// held is how many leases end at now or later; of those in the present period it cannot
// tell, and counts them.
func (c tally) held(now time.Time) int {
	n := int64(0)
	for p, leases := range c {
		if p >= period(now) {
			n += leases
		}
	}
	return int(max(n, 0))
}
