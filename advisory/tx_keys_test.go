package advisory_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

func TestLockTxTakesSeveralKeysInOneOrder(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l, work := open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		text, err := agents.Text("acme")
		require.NoError(t, err)
		keys := []namespace.Key{text, agents.ID(3), agents.ID(1), agents.ID(3), agents.ID(2)}
		tx, err := work.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
		require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, keys...))
		for _, key := range keys {
			_, err := l.TryAcquire(t.Context(), key)
			require.ErrorIs(t, err, advisory.ErrHeld)
		}
		require.NoError(t, tx.Rollback(t.Context()))
		require.Zero(t, locks(t, work, true))

		// Two transactions that name the keys in opposite orders, again and again: neither is
		// the victim of a deadlock.
		done := make(chan error, 2)
		for _, keys := range [][]namespace.Key{{agents.ID(1), agents.ID(2)}, {agents.ID(2), agents.ID(1)}} {
			go func() {
				var err error
				for i := 0; i < 50 && err == nil; i++ {
					err = pgx.BeginFunc(t.Context(), work, func(tx pgx.Tx) error { return advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, keys...) })
				}
				done <- err
			}()
		}
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
}

func TestLockTxWaitsForEachKeyThatIsHeld(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l, work := open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		var held []*advisory.Lock
		for _, id := range []int32{1, 3} {
			lock, err := l.Acquire(t.Context(), agents.ID(int64(id)))
			require.NoError(t, err)
			held = append(held, lock)
		}
		tx, err := work.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
		done := make(chan error, 1)
		go func() {
			done <- advisory.LockTx(t.Context(), tx, advisory.TxOptions{Wait: advisory.NoTimeout}, agents.ID(3), agents.ID(2), agents.ID(1))
		}()
		for i, lock := range held {
			await.Until(t, await.Soon, func() bool { return locks(t, work, false) == 1 }, "waiting for %d", i)
			require.NoError(t, lock.Release())
		}
		require.NoError(t, <-done)
		_, err = l.TryAcquire(t.Context(), agents.ID(2))
		require.ErrorIs(t, err, advisory.ErrHeld)
		require.NoError(t, tx.Rollback(t.Context()))
	})
}

func TestATryOfLockTxTakesAllKeysOrNone(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l, work := open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		lock, err := l.Acquire(t.Context(), agents.ID(2))
		require.NoError(t, err)
		tx, err := work.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
		err = advisory.LockTx(t.Context(), tx, advisory.TxOptions{Try: true}, agents.ID(3), agents.ID(2), agents.ID(1))
		require.ErrorIs(t, err, advisory.ErrHeld)
		require.NotErrorIs(t, err, advisory.ErrTimeout)
		require.ErrorContains(t, err, "lock agent/2 is held by backend ")
		for _, id := range []int64{1, 3} {
			other, err := l.TryAcquire(t.Context(), agents.ID(id))
			require.NoError(t, err, "none was kept")
			require.NoError(t, other.Release())
		}
		require.NoError(t, lock.Release())
		require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{Try: true}, agents.ID(3), agents.ID(2), agents.ID(1)))
		require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{Shared: true, Try: true}, agents.ID(4)))
		reader, err := l.With(advisory.Options{Shared: true}).TryAcquire(t.Context(), agents.ID(4))
		require.NoError(t, err)
		require.NoError(t, reader.Release())
		require.NoError(t, tx.Commit(t.Context()), "the transaction was usable all the time")
		require.Zero(t, locks(t, work, true))
	})
}

func TestLockTxRefusesBadInput(t *testing.T) {
	t.Parallel()
	var config *advisory.ConfigError
	require.ErrorAs(t, advisory.LockTx(t.Context(), nil, advisory.TxOptions{}, agents.ID(1)), &config)
	require.ErrorAs(t, advisory.LockSQLTx(t.Context(), nil, advisory.TxOptions{Try: true}, agents.ID(1)), &config)
	tx := struct{ pgx.Tx }{}
	require.ErrorAs(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{Wait: -1}, agents.ID(1)), &config)
	require.ErrorAs(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{Wait: time.Second, Try: true}, agents.ID(1)), &config)
	require.ErrorIs(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{}), namespace.ErrInvalidKey)
	require.ErrorIs(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, agents.ID(1), namespace.Key{}), namespace.ErrInvalidKey)
}

// A pretender is a transaction on a server whose functions say yes and lock nothing.
type pretender struct{ *sql.Tx }

func (p pretender) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return p.Tx.ExecContext(ctx, strings.ReplaceAll(query, "pg_catalog.pg_try_advisory_xact_lock(", "pg_temp.pretend("), args...)
}

func TestAServerThatOnlyPretendsToLockIsRefused(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", pgtest.DSN(t))
	require.NoError(t, err)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "CREATE FUNCTION pg_temp.pretend(int, int) RETURNS bool LANGUAGE sql AS 'SELECT true'; CREATE FUNCTION pg_temp.pretend(int8) RETURNS bool LANGUAGE sql AS 'SELECT true'")
	require.NoError(t, err)
	for range 2 {
		err = advisory.LockSQLTx(t.Context(), pretender{tx}, advisory.TxOptions{}, agents.ID(1))
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
	require.NoError(t, advisory.LockSQLTx(t.Context(), tx, advisory.TxOptions{}, agents.ID(1)), "the control: a real lock")
	require.NoError(t, tx.Rollback())
}
