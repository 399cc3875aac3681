package advisory_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/statements"
	"github.com/pglatch/pglatch/internal/test/pgtest/txshapes"
	"github.com/pglatch/pglatch/namespace"
)

func TestLockTxThatTimesOutLeavesTheTransactionAsItWas(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l, work := open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		lock, err := l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		tx, err := work.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "SET LOCAL lock_timeout = '123456ms'")
		require.NoError(t, err)
		err = advisory.LockTx(t.Context(), tx, advisory.TxOptions{Wait: 50 * time.Millisecond}, agents.ID(1))
		require.ErrorIs(t, err, advisory.ErrTimeout)
		require.ErrorContains(t, err, fmt.Sprintf("by backend %d (", lock.PID()))
		err = advisory.LockTx(lock.Context(), tx, advisory.TxOptions{}, agents.ID(1))
		require.ErrorIs(t, err, advisory.ErrReentrant)

		time.AfterFunc(20*time.Millisecond, func() { _ = lock.Release() })
		require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, agents.ID(1)), "it waits and gets it")
		var setting string
		require.NoError(t, tx.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&setting))
		require.Equal(t, "123456ms", setting)
		require.NoError(t, tx.Rollback(t.Context()))
		require.Zero(t, locks(t, work, true))
	})
}

// A transaction that holds a key does not queue behind a writer that waits for it. Plain SQL
// behaves the same.
func TestATransactionThatHasAKeyGetsItAgainThoughAWriterWaits(t *testing.T) {
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		for name, options := range map[string]advisory.TxOptions{"shared": {Shared: true}, "exclusive": {}} {
			s := newScene(t, options)
			assert.NoError(t, advisory.LockTx(t.Context(), s.first, advisory.TxOptions{Shared: true}, agents.ID(1)), name)
			assert.NoError(t, advisory.LockTx(t.Context(), s.first, advisory.TxOptions{Shared: true, Try: true}, agents.ID(1)), name)
			require.NoError(t, s.first.Commit(t.Context()))
			require.NoError(t, <-s.queued, "the writer gets it at the commit")
			require.NoError(t, (<-s.lock).Release())
		}
	})
}

// acquire takes the lock on agent 1 with what has the methods of a transaction.
func acquire(t *testing.T, tx any) error {
	t.Helper()
	if tx, ok := tx.(advisory.PgxTx); ok {
		return advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, agents.ID(1))
	}
	return advisory.LockSQLTx(t.Context(), tx.(advisory.SQLTx), advisory.TxOptions{}, agents.ID(1))
}

// withShapes runs a test in both modes and with each protocol.
func withShapes(t *testing.T, test func(b txshapes.Base, locker *advisory.Locker)) {
	t.Helper()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		txshapes.InEveryMode(t, pgtest.DSN, func(b txshapes.Base, dsn string) {
			test(b, open(b.T, advisory.Config{DSN: dsn}))
		})
	})
}

func TestWhatIsNotInATransactionTakesNoLock(t *testing.T) {
	t.Parallel()
	withShapes(t, func(b txshapes.Base, locker *advisory.Locker) {
		b.Each(txshapes.None, func(t *testing.T, _ string, tx any) {
			t.Helper()
			require.ErrorIs(t, acquire(t, tx), advisory.ErrNoTransaction)
			require.Zero(t, locks(t, b.Pool, true))
			lock, err := locker.TryAcquire(t.Context(), agents.ID(1))
			require.NoError(t, err)
			require.ErrorIs(t, acquire(t, tx), advisory.ErrNoTransaction, "at once, though somebody holds the lock")
			require.NoError(t, lock.Release())
		})
	})
}

func TestWhatIsInATransactionTakesTheLock(t *testing.T) {
	t.Parallel()
	withShapes(t, func(b txshapes.Base, locker *advisory.Locker) {
		b.Each(txshapes.Begun, func(t *testing.T, _ string, tx any) {
			t.Helper()
			require.NoError(t, acquire(t, tx))
			_, err := locker.TryAcquire(t.Context(), agents.ID(1))
			require.ErrorIs(t, err, advisory.ErrHeld)
			require.NoError(t, txshapes.Exec(t.Context(), tx, "ROLLBACK"))
			require.Zero(t, locks(t, b.Pool, true))
		})
	})
}

func TestAnAbortedTransactionTakesNoLockAndSaysSo(t *testing.T) {
	t.Parallel()
	withShapes(t, func(b txshapes.Base, _ *advisory.Locker) {
		b.Each(txshapes.Begun, func(t *testing.T, _ string, tx any) {
			t.Helper()
			require.Error(t, txshapes.Exec(t.Context(), tx, "SELECT 1/0"))
			err := acquire(t, tx)
			require.NotErrorIs(t, err, advisory.ErrNoTransaction)
			require.ErrorContains(t, err, "25P02")
			require.ErrorContains(t, err, "transaction is aborted")
			require.Zero(t, locks(t, b.Pool, true))
		})
	})
}

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
		work := dbtest.Pool(t, counter.DSN)
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
