package ledgertest

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/leader/driver"
)

// schema creates the table of writes. A trigger locks the row of the write's key in top until its commit, so that seq is
// the order of commits. term of top is the greatest that wrote, or announced that it leads; a write of a lower term is stale.
const schema = `
CREATE TABLE top (key text PRIMARY KEY, term bigint NOT NULL, writes bigint NOT NULL, stale bigint NOT NULL);
CREATE TABLE writes (key text, seq bigint, term bigint NOT NULL, node text NOT NULL, PRIMARY KEY (key, seq));
CREATE FUNCTION check_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO top VALUES (NEW.key, NEW.term, 1, 0) ON CONFLICT (key) DO UPDATE
		SET writes = top.writes + 1, stale = top.stale + (NEW.term < top.term)::int, term = greatest(NEW.term, top.term)
		RETURNING writes INTO NEW.seq;
	RETURN NEW;
END $$;
CREATE TRIGGER check_write BEFORE INSERT ON writes FOR EACH ROW EXECUTE FUNCTION check_write();
`

// Statements of nodes.
const (
	writeSQL    = "INSERT INTO writes (key, term, node) VALUES ($1, $2, $3)"
	announceSQL = "INSERT INTO top VALUES ($1, $2, 0, 0) ON CONFLICT (key) DO UPDATE SET term = $2 WHERE top.term < $2"
)

// A verdict counts the content of the table, and its violations.
type verdict struct {
	Writes, Terms int
	Stale         int // writes of a term after a later one had begun, as the trigger found them
	Late          int // writes of a term after one of a later term, by their order alone
	Shared        int // writes of a term in which another node had written
}

func (l *Ledger) judge(t *testing.T) (v verdict) {
	t.Helper()
	terms, _, err := ReadTerms(context.Background(), l.Pool, "SELECT key, term, node, now() FROM writes ORDER BY key, seq")
	require.NoError(t, err)
	require.NoError(t, l.Pool.QueryRow(context.Background(), "SELECT coalesce(sum(stale), 0)::bigint FROM top").Scan(&v.Stale))
	v.Terms, v.Writes, _ = terms.Total()
	late, shared := terms.Drain()
	v.Late, v.Shared = len(late), len(shared)
	return v
}

// ReadTerms has the judge of the fault tests see writes: rows of a key, a term, a node and a time, in their order. A key's
// number in the judge is its place in keys.
func ReadTerms(ctx context.Context, pool *pgxpool.Pool, sql string) (terms *judge.Terms, keys []string, err error) {
	terms = judge.NewTerms()
	var nodes []string
	var key, node string
	var term uint64
	op := judge.Operation{N: 1}
	rows, _ := pool.Query(ctx, sql) //nolint:rowserrcheck // ForEachRow returns the error
	_, err = pgx.ForEachRow(rows, []any{&key, &term, &node, &op.At}, func() error {
		op.Key, op.Node, op.Term = place(&keys, key), place(&nodes, node), driver.TermOf(term)
		terms.See(op)
		return nil
	})
	return terms, keys, err
}

// place returns the place of a text among all, to which it adds a new one.
func place(all *[]string, text string) int {
	i := slices.Index(*all, text)
	if i < 0 {
		i, *all = len(*all), append(*all, text)
	}
	return i
}
