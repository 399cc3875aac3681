//go:build integration

package election

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// The ledger is the judge of transactions. A write locks the row of top until its
// commit, so that seq is the order of commits; term is the greatest that wrote or
// announced that it leads. A write of a lower term is stale.
const ledgerSQL = `
CREATE TABLE top (term bigint NOT NULL, writes bigint NOT NULL, stale bigint NOT NULL);
INSERT INTO top VALUES (0, 0, 0);
CREATE TABLE writes (seq bigint PRIMARY KEY, term bigint NOT NULL, node int NOT NULL);
CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE top SET writes = writes + 1, stale = stale + (NEW.term < term)::int, term = greatest(term, NEW.term)
		RETURNING writes INTO NEW.seq;
	RETURN NEW;
END $$;
CREATE TRIGGER judge BEFORE INSERT ON writes FOR EACH ROW EXECUTE FUNCTION judge();
`

const (
	writeSQL    = "INSERT INTO writes (term, node) VALUES ($1, $2)"
	announceSQL = "UPDATE top SET term = $1 WHERE term < $1"
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

// verdict counts the writes; stale ones came after a later term had begun, and
// where the order of commits goes back, one came after a later term's write.
func (l *ledger) verdict(t *testing.T) (writes, stale, back int) {
	t.Helper()
	require.NoError(t, l.pool.QueryRow(context.Background(), "SELECT writes, stale FROM top").Scan(&writes, &stale))
	require.NoError(t, l.pool.QueryRow(context.Background(), `SELECT count(*) FROM
		(SELECT term, lag(term) OVER (ORDER BY seq) AS before FROM writes) AS w WHERE term < before`).Scan(&back))
	return writes, stale, back
}
