package rules

import (
	"cmp"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// A Sweeping is a sweep's decision about one name.
type Sweeping struct {
	Row     Row  // the new row, unless it is dropped
	Changed bool // Row is to be stored
	Drop    bool // the row is to be deleted, after raising the floor to Row.Version in the same transaction
	Expired int  // leases to count as expired
}

// Sweep decides about one name. retention is how long a name is kept after its lease ended.
func Sweep(row Row, now time.Time, retention time.Duration) Sweeping {
	s := Sweeping{Row: row, Expired: row.Uncounted}
	s.Row.Uncounted = 0
	if row.State(now) == lease.Expired {
		s.Expired++
		s.Row.Cleared = true
		s.Row.Version++
	}
	s.Drop = row.known() && row.State(now) != lease.Held &&
		!now.Before(row.EndedAt().Add(retention)) && !now.Before(row.AvailableAt())
	s.Changed = !s.Drop && s.Expired > 0
	return s
}

// sweepTime is the time after which a sweep begins no further transaction.
const sweepTime = 10 * time.Millisecond

// Transactions sweeps in transactions of at most size names. After 10 ms it begins no
// further transaction, so that the cost of a sweep does not grow with the backlog. sweep makes one
// transaction, adds its counts to total, and returns how many names were due. Last, held counts the
// held leases. After an error, the result has the counts of the transactions before it.
func Transactions(r lease.SweepRequest, size int,
	sweep func(retention time.Duration, limit int, total *lease.SweepResult) (due int, err error), held func() (int, error),
) (total lease.SweepResult, err error) {
	if err := r.Validate(); err != nil {
		return total, err
	}
	retention, left := cmp.Or(r.Retention, lease.DefaultRetention), cmp.Or(r.Limit, lease.DefaultSweepLimit)
	began, more := time.Now(), true
	for more && left > 0 {
		limit := min(left, size)
		due, err := sweep(retention, limit, &total)
		if err != nil {
			return total, err
		}
		left -= due
		more = due == limit
		if time.Since(began) >= sweepTime {
			break
		}
	}
	total.Held, err = held()
	total.More = more && err == nil
	return total, err
}
