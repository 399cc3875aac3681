package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgtable"
)

// sweepBatch is how many ticks one statement removes.
const sweepBatch = 100

// sweepSQL removes ticks that no window reaches any more. It waits for no locks.
const sweepSQL = `DELETE FROM %[1]s AS t USING (SELECT job, tick FROM %[1]s
	WHERE tick OPERATOR(pg_catalog.<) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) interval '8 days')
		AND (state OPERATOR(pg_catalog.<>) 'running' OR expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp())
	ORDER BY tick LIMIT %[2]d FOR UPDATE SKIP LOCKED) AS old
	WHERE t.job OPERATOR(pg_catalog.=) old.job AND t.tick OPERATOR(pg_catalog.=) old.tick`

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
	var removed int64
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, fmt.Sprintf(sweepSQL, pgtable.Quote(s.table), sweepBatch))
		removed = tag.RowsAffected()
		return err
	})
	return int(removed), failed(s.table, err)
}
