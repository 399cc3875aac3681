package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/lease"
)

// sweepBatch is how many names a sweep changes in one transaction, and sweepTime how long it begins
// further transactions. So the cost of a sweep does not grow with the backlog.
const (
	sweepBatch = 100
	sweepTime  = 10 * time.Millisecond
)

const (
	sweepSQL = `SELECT touched, expired, removed FROM pglatch_lease.sweep($1::bigint, $2::int, $3::text)`
	heldSQL  = `SELECT pglatch_lease.held()`
)

// Sweep sweeps as lease.Store says, in transactions of a hundred names each. After 10 ms it begins
// none. It waits for no name: names that others are changing are left for the next sweep. After an
// error, the result has the counts of the transactions before it.
func (s *Store) Sweep(ctx context.Context, r lease.SweepRequest) (lease.SweepResult, error) {
	var result lease.SweepResult
	if err := r.Validate(); err != nil {
		return result, err
	}
	retention := micros(cmp.Or(r.Retention, lease.DefaultRetention))
	left := cmp.Or(r.Limit, lease.DefaultSweepLimit)
	began, more := time.Now(), true
	for more && left > 0 && time.Since(began) < sweepTime {
		limit := min(left, sweepBatch)
		var touched, expired, removed int
		err := s.rows(ctx, func(row pgx.CollectableRow) error {
			return row.Scan(&touched, &expired, &removed)
		}, sweepSQL, retention, limit, s.wait)
		if err != nil {
			return result, err
		}
		result.Expired += expired
		result.Removed += removed
		left -= touched
		more = touched == limit
	}
	err := s.rows(ctx, func(row pgx.CollectableRow) error { return row.Scan(&result.Held) }, heldSQL)
	result.More = more && err == nil
	return result, err
}
