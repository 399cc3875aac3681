package postgres

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/lease"
)

// sweepBatch is how many names a sweep changes in one transaction.
const sweepBatch = 1000

const (
	sweepSQL = `SELECT touched, expired, removed FROM pglatch_lease.sweep($1::bigint, $2::int, $3::text)`
	heldSQL  = `SELECT pglatch_lease.held()`
)

// Sweep looks after names as lease.Store says, in transactions of a thousand each.
// It waits for no name: what others are at is left for the next sweep. After an
// error, what was counted before it is in the result.
func (s *Store) Sweep(ctx context.Context, r lease.SweepRequest) (lease.SweepResult, error) {
	var result lease.SweepResult
	if err := r.Validate(); err != nil {
		return result, err
	}
	retention := micros(cmp.Or(r.Retention, lease.DefaultRetention))
	left := cmp.Or(r.Limit, lease.DefaultSweepLimit)
	for left > 0 {
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
		if left -= touched; touched < limit {
			break
		}
	}
	err := s.rows(ctx, func(row pgx.CollectableRow) error { return row.Scan(&result.Held) }, heldSQL)
	result.More = err == nil && left <= 0
	return result, err
}
