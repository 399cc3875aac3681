package advisory_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest/statements"
	"github.com/pglatch/pglatch/namespace"
)

const (
	mixedRounds    = 20 // of eleven calls; each round has keys of its own
	mostStatements = 30 // different texts that the rounds may send
)

// mixedCalls makes calls of all kinds, on keys that no other round has.
func mixedCalls(t *testing.T, l *advisory.Locker, db *sql.DB, holder, tx pgx.Tx, round int64) {
	t.Helper()
	text, err := agents.Text("agent " + time.Unix(round, 0).String())
	require.NoError(t, err)
	free, held, several := agents.ID(round), text, []namespace.Key{agents.ID(10_000 + round), agents.ID(20_000 + round)}
	shared, short := advisory.TxOptions{Shared: true}, advisory.TxOptions{Wait: time.Millisecond}
	require.NoError(t, advisory.LockTx(t.Context(), holder, advisory.TxOptions{}, held))

	require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, free))
	require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{Try: true}, several...))
	require.NoError(t, advisory.LockTx(t.Context(), tx, shared, agents.ID(30_000+round)))
	require.ErrorIs(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{Try: true}, held), advisory.ErrHeld)
	require.ErrorIs(t, advisory.LockTx(t.Context(), tx, short, held), advisory.ErrTimeout)
	for _, key := range []namespace.Key{free, held} { // a busy machine does not always have a connection by then
		require.Error(t, l.With(advisory.Options{Wait: 30 * time.Millisecond}).Do(t.Context(), key, noWork))
	}
	lock, err := l.Acquire(t.Context(), agents.ID(40_000+round))
	require.NoError(t, err)
	require.NoError(t, lock.Release())
	standard, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, advisory.LockSQLTx(t.Context(), standard, advisory.TxOptions{}, agents.ID(50_000+round)))
	require.ErrorIs(t, advisory.LockSQLTx(t.Context(), standard, advisory.TxOptions{Try: true}, held), advisory.ErrHeld)
	require.NoError(t, standard.Rollback())
}

func noWork(context.Context) error { return nil }

func TestDifferentKeysAreNoDifferentStatements(t *testing.T) {
	t.Parallel()
	server := statements.Start(t)
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		counter := server.Count(t)
		work := workPool(t, counter.DSN)
		db, err := sql.Open("pgx", counter.DSN)
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		l := open(t, advisory.Config{DSN: counter.DSN})
		holder, tx := begin(t, work), begin(t, work)
		for round := range mixedRounds {
			mixedCalls(t, l, db, holder, tx, int64(round))
		}

		assert.LessOrEqual(t, statements.Prepared(t, tx.Conn()), 10, "in the caller's session")
		if n, ok := counter.Entries(t); ok {
			require.Greater(t, n, 10, "they are counted")
			assert.LessOrEqual(t, n, mostStatements)
			t.Log("entries of pg_stat_statements:", n)
		}
		texts := counter.Texts(t)
		require.Greater(t, len(texts), 10, "the log was read")
		waits := 0
		for text, n := range texts {
			if strings.Contains(text, "pg_catalog.pg_advisory_lock(") {
				waits += n
			}
		}
		require.Positive(t, waits, "the Locker waited")
		if !assert.LessOrEqual(t, len(texts), mostStatements) {
			for text, n := range texts {
				t.Log(n, text)
			}
		}
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, holder.Rollback(t.Context()))
	})
}
