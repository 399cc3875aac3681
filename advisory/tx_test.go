package advisory_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestLockTxHoldsTheLockUntilTheTransactionEnds(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l, work := open(t, advisory.Config{DSN: dsn, MaxConns: 1}), workPool(t, dsn)
		text, err := agents.Text("acme")
		require.NoError(t, err)
		tx, err := work.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, agents.ID(1)))
		require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, text))
		_, err = l.TryAcquire(t.Context(), agents.ID(1))
		require.ErrorIs(t, err, advisory.ErrHeld)
		_, err = l.TryAcquire(t.Context(), text)
		require.ErrorIs(t, err, advisory.ErrHeld)
		require.NoError(t, tx.Commit(t.Context()))
		lock, err := l.TryAcquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		require.NoError(t, lock.Release())
	})
}

func TestLockTxThatTimesOutLeavesTheTransactionAsItWas(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l, work := open(t, advisory.Config{DSN: dsn}), workPool(t, dsn)
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

func TestLockSQLTxWorksWithDatabaseSQL(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l := open(t, advisory.Config{DSN: dsn})
		db, err := sql.Open("pgx", dsn)
		require.NoError(t, err)
		defer db.Close()
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, advisory.LockSQLTx(t.Context(), tx, advisory.TxOptions{}, agents.ID(1)))
		shared := l.With(advisory.Options{Shared: true})
		require.NoError(t, advisory.LockSQLTx(t.Context(), tx, advisory.TxOptions{Shared: true}, agents.ID(2)))
		_, err = l.TryAcquire(t.Context(), agents.ID(1))
		require.ErrorIs(t, err, advisory.ErrHeld)
		reader, err := shared.TryAcquire(t.Context(), agents.ID(2))
		require.NoError(t, err)

		other, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		err = advisory.LockSQLTx(t.Context(), other, advisory.TxOptions{Wait: 20 * time.Millisecond}, agents.ID(1))
		require.ErrorIs(t, err, advisory.ErrTimeout)
		require.NoError(t, other.Commit(), "the transaction is usable after the timeout")
		require.NoError(t, tx.Rollback())
		require.NoError(t, reader.Release())
	})
}
