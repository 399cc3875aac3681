package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// sweepBatch is how many names a sweep changes in one transaction.
const sweepBatch = 100

const (
	sweepSQL = `SELECT touched, expired, removed FROM pglatch_lease.sweep($1::bigint, $2::int, $3::text)`
	heldSQL  = `SELECT pglatch_lease.held()`
)

// Sweep implements lease.Store, in transactions of a hundred names each. After 10 ms it
// begins no further transaction. It does not wait for any name: names that others are
// changing are left for the next sweep. After an error, the result has the counts of the
// transactions that succeeded before it.
func (s *Store) Sweep(ctx context.Context, r lease.SweepRequest) (lease.SweepResult, error) {
	return rules.Transactions(r, sweepBatch, func(retention time.Duration, limit int, total *lease.SweepResult) (int, error) {
		var touched, expired, removed int
		err := s.rows(ctx, func(row pgx.CollectableRow) error {
			return row.Scan(&touched, &expired, &removed)
		}, sweepSQL, micros(retention), limit, s.wait)
		total.Expired += expired
		total.Removed += removed
		return touched, err
	}, func() (held int, err error) {
		err = s.rows(ctx, func(row pgx.CollectableRow) error { return row.Scan(&held) }, heldSQL)
		return held, err
	})
}
