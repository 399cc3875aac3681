package postgres

import (
	"context"
	"fmt"

	"github.com/pglatch/pglatch/internal/pgtable"
)

// sweepBatch is how many ticks one statement removes.
const sweepBatch = 100

// sweepSQL removes ticks that no window reaches any more. It waits for no locks.
const sweepSQL = `DELETE FROM %[1]s WHERE (job, tick) IN (SELECT job, tick FROM %[1]s
	WHERE tick < pg_catalog.clock_timestamp() - interval '8 days' AND (state <> 'running' OR expires_at <= pg_catalog.clock_timestamp())
	ORDER BY tick LIMIT %[2]d FOR UPDATE SKIP LOCKED)`

// Sweep removes all ticks that are older than eight days, and returns how many. Each End of a run
// removes up to a hundred of them, so only programs that use nothing but DoTx need Sweep.
func (s *Store) Sweep(ctx context.Context) (removed int, err error) {
	for {
		n, err := s.sweep(ctx)
		removed += n
		if err != nil || n < sweepBatch {
			return removed, err
		}
	}
}

func (s *Store) sweep(ctx context.Context) (int, error) {
	tag, err := s.pool.Exec(ctx, fmt.Sprintf(sweepSQL, pgtable.Quote(s.table), sweepBatch))
	return int(tag.RowsAffected()), failed(s.table, err)
}
