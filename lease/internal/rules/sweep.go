package rules

import (
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
