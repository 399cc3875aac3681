package ledgertest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
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
	Shared        int // terms in which more than one node wrote
	Fallen        int // terms that began after a later one
}

const judgeSQL = `
WITH marked AS (
	SELECT *, max(term) OVER (PARTITION BY key ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest FROM writes
), terms AS (
	SELECT count(DISTINCT node) AS nodes, (array_agg(term < highest ORDER BY seq))[1] AS fallen FROM marked GROUP BY key, term
)
SELECT (SELECT count(*) FROM marked) AS writes, (SELECT count(*) FROM terms) AS terms, (SELECT coalesce(sum(stale), 0)::bigint FROM top) AS stale,
	(SELECT count(*) FROM marked WHERE term < highest) AS late,
	(SELECT count(*) FROM terms WHERE nodes > 1) AS shared, (SELECT count(*) FROM terms WHERE fallen) AS fallen`

func (l *Ledger) judge(t *testing.T) verdict {
	t.Helper()
	rows, _ := l.Pool.Query(context.Background(), judgeSQL) // CollectExactlyOneRow returns the error
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[verdict])
	require.NoError(t, err)
	return v
}
