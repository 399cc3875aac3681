//go:build integration

package shards

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// The ledger checks transactions. A write locks its shard's row of top until its commit, so that seq
// is the order of commits; term is the greatest that wrote or announced that it owns. A write of a
// lower term is stale.
const ledgerSQL = `
CREATE TABLE top (shard int PRIMARY KEY, term bigint NOT NULL, writes bigint NOT NULL, stale bigint NOT NULL);
INSERT INTO top SELECT n, 0, 0, 0 FROM generate_series(0, 999) AS n;
CREATE TABLE writes (shard int, seq bigint, term bigint NOT NULL, node int NOT NULL, PRIMARY KEY (shard, seq));
CREATE FUNCTION check_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE top SET writes = writes + 1, stale = stale + (NEW.term < term)::int, term = greatest(term, NEW.term)
		WHERE shard = NEW.shard RETURNING writes INTO NEW.seq;
	RETURN NEW;
END $$;
CREATE TRIGGER check_write BEFORE INSERT ON writes FOR EACH ROW EXECUTE FUNCTION check_write();
`

const (
	writeSQL    = "INSERT INTO writes (shard, term, node) VALUES ($1, $2, $3)"
	announceSQL = "UPDATE top SET term = $2 WHERE shard = $1 AND term < $2"
)

type ledger struct{ pool *pgxpool.Pool }

func newLedger(t *testing.T, dsn string) *ledger {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), ledgerSQL)
	require.NoError(t, err)
	return &ledger{pool}
}

// verdict counts the writes; stale ones came after a later term had begun, and where the order of
// commits goes back, one came after a later term's write.
func (l *ledger) verdict(t *testing.T) (writes, stale, back int) {
	t.Helper()
	require.NoError(t, l.pool.QueryRow(context.Background(), "SELECT sum(writes), sum(stale) FROM top").Scan(&writes, &stale))
	require.NoError(t, l.pool.QueryRow(context.Background(), `SELECT count(*) FROM
		(SELECT term, lag(term) OVER (PARTITION BY shard ORDER BY seq) AS before FROM writes) AS w WHERE term < before`).Scan(&back))
	return writes, stale, back
}

// locks counts all advisory locks.
func (l *ledger) locks(t *testing.T) (locks int, err error) {
	t.Helper()
	err = l.pool.QueryRow(context.Background(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&locks)
	return locks, err
}

// sessions returns the pids of those that carry shards, not only the locks of a transaction.
func (l *ledger) sessions() (pids []int32, err error) {
	rows, err := l.pool.Query(context.Background(), `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted GROUP BY pid HAVING count(*) > 5`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int32])
}
