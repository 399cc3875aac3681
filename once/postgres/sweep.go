package postgres

import (
	"context"
	"fmt"
)

// sweepBatch is how many ticks are forgotten in one statement.
const sweepBatch = 100

// sweepSQL forgets ticks that no window reaches any more. It waits for nobody.
const sweepSQL = `DELETE FROM %[1]s WHERE (job, tick) IN (SELECT job, tick FROM %[1]s
	WHERE tick < pg_catalog.clock_timestamp() - interval '8 days' AND (state <> 'running' OR expires_at <= pg_catalog.clock_timestamp())
	ORDER BY tick LIMIT %[2]d FOR UPDATE SKIP LOCKED)`

// Sweep forgets all ticks that are older than eight days, and returns how many. Each End of a run
// forgets up to a hundred of them, so Sweep is only for programs that use nothing but DoTx.
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
	tag, err := s.pool.Exec(ctx, fmt.Sprintf(sweepSQL, quoted(s.table), sweepBatch))
	return int(tag.RowsAffected()), failed(s.table, err)
}
