package sqlite

import (
	"time"

	"github.com/pglatch/pglatch/lease/internal/ledger"
)

// A place is where the table due has a name: so that a sweep finds what it has to do
// without looking at the rest. Each name has one place. Operations leave it as it is as
// long as it comes early enough; a sweep puts a name that it finds too early where it
// belongs.
type place struct {
	swept bool  // a sweep saw that it had ended, and counted it: at is when it could be granted, and nobody looks until a retention later
	at    int64 // nanoseconds: look at it then
}

// placeFor is where a name goes whose row an operation has changed.
func placeFor(old *record, row *ledger.Row, now time.Time) place {
	want := place{at: nanoseconds(now)}
	if live(row) {
		want.at = nanoseconds(row.ExpiresAt)
	}
	if old != nil && !old.place.swept && old.place.at <= want.at && old.place.at != 0 {
		return old.place
	}
	return want
}

// placeAfterSweep is where a name goes that a sweep has looked at and kept.
func placeAfterSweep(row *ledger.Row) place {
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
