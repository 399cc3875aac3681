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

func TestLockTxInsideALockOnTheSameKeyIsReentrantOnlyWhileThatIsHeld(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l, work := open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		lock, err := l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		ctx := context.WithoutCancel(lock.Context())
		tx, err := work.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
		require.ErrorIs(t, advisory.LockTx(ctx, tx, advisory.TxOptions{}, agents.ID(1)), advisory.ErrReentrant)
		require.ErrorIs(t, advisory.LockTx(ctx, tx, advisory.TxOptions{Try: true}, agents.ID(1)), advisory.ErrReentrant)
		require.NoError(t, lock.Release())
		require.NoError(t, advisory.LockTx(ctx, tx, advisory.TxOptions{}, agents.ID(1)))
		require.NoError(t, tx.Rollback(t.Context()))
	})
}

// requireReentrant demands that the call refuses the key at once, and that it locked nothing.
func requireReentrant(t *testing.T, err error, tx *waitCounter, key namespace.Key) {
	t.Helper()
	var reentrant *advisory.ReentrantError
	require.ErrorAs(t, err, &reentrant)
	require.Equal(t, key.Tag(), reentrant.Key.Tag())
	require.Zero(t, tx.waits.Load(), "it did not wait")
	var n int
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()").Scan(&n))
	require.Zero(t, n, "nothing is locked")
}

func TestLockTxOfACarriedKeyLocksNothing(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l, work := open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		carried, err := l.Acquire(t.Context(), agents.ID(2))
		require.NoError(t, err)
		tx := &waitCounter{Tx: begin(t, work)}
		requireReentrant(t, advisory.LockTx(carried.Context(), tx, advisory.TxOptions{}, agents.ID(1), agents.ID(2)), tx, agents.ID(2))
		requireReentrant(t, advisory.LockTx(carried.Context(), tx, advisory.TxOptions{Try: true}, agents.ID(1), agents.ID(2)), tx, agents.ID(2))

		elsewhere := begin(t, dbtest.Pool(t, pgtest.DSN(t)))
		require.NoError(t, advisory.LockTx(carried.Context(), elsewhere, advisory.TxOptions{}, agents.ID(2)), "the key of another database is another one")
		require.NoError(t, elsewhere.Rollback(t.Context()))
		require.NoError(t, carried.Release())
	})
}

func TestLockTxFindsACarriedKeyOnEachConnectionOfAnAcquireAll(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l, work := open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		holder := begin(t, work)
		require.NoError(t, advisory.LockTx(t.Context(), holder, advisory.TxOptions{}, agents.ID(2)))
		locked := make(chan *advisory.Lock, 1)
		done := started(func() error { // the second key lives where it is waited for
			lock, err := l.AcquireAll(t.Context(), agents.ID(1), agents.ID(2))
			locked <- lock
			return err
		})
		eventually(t, func() bool { return locks(t, work, false) == 1 })
		require.NoError(t, holder.Commit(t.Context()))
		require.NoError(t, <-done)
		carried := <-locked
		tx := &waitCounter{Tx: begin(t, work)}
		for _, id := range []int64{1, 2} {
			requireReentrant(t, advisory.LockTx(carried.Context(), tx, advisory.TxOptions{}, agents.ID(id)), tx, agents.ID(id))
		}
		require.NoError(t, carried.Release())
	})
}

func TestLockTxFindsACarriedSharedLock(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		shared := advisory.TxOptions{Shared: true}
		work := dbtest.Pool(t, dsn)
		reader := begin(t, work)
		require.NoError(t, advisory.LockTx(t.Context(), reader, shared, agents.ID(1)))
		l := open(t, advisory.Config{DSN: dsn})
		carried, err := l.With(advisory.Options{Shared: true}).Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		tx := &waitCounter{Tx: begin(t, work)}
		requireReentrant(t, advisory.LockTx(carried.Context(), tx, advisory.TxOptions{}, agents.ID(1)), tx, agents.ID(1))
		require.NoError(t, advisory.LockTx(carried.Context(), tx, shared, agents.ID(1)), "a reader is in no reader's way")
		require.NoError(t, tx.Rollback(t.Context()))

		writer := begin(t, work)
		done := started(func() error {
			return advisory.LockTx(t.Context(), writer, advisory.TxOptions{Wait: advisory.NoTimeout}, agents.ID(1))
		})
		eventually(t, func() bool { return locks(t, work, false) == 1 })
		behind := &waitCounter{Tx: begin(t, work)}
		requireReentrant(t, advisory.LockTx(carried.Context(), behind, shared, agents.ID(1)), behind, agents.ID(1)) // the writer waits for the lock that is carried
		require.NoError(t, carried.Release())
		require.NoError(t, reader.Rollback(t.Context()))
		require.NoError(t, <-done)
		require.NoError(t, writer.Rollback(t.Context()))
	})
}

// timeoutOf returns the timeout of a call that waits for a key that is held, and names the holder.
func timeoutOf(t *testing.T, call func() error) (timeout *advisory.TimeoutError) {
	t.Helper()
	eventually(t, func() bool { // a busy machine does not always say who
		return errors.As(call(), &timeout) && timeout.Holder != nil
	})
	return timeout
}

func TestTimeoutsSayThatTheHolderIsInThisProcess(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn, short := pgtest.DSN(t), 50*time.Millisecond
		l, other, work := open(t, advisory.Config{DSN: dsn}), open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		do := func(l *advisory.Locker) func() error {
			return func() error { return l.With(advisory.Options{Wait: short}).Do(t.Context(), agents.ID(1), noWork) }
		}
		conn, err := work.Acquire(t.Context())
		require.NoError(t, err)
		t.Cleanup(conn.Release)
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		second := begin(t, work)
		lockTx := func() error {
			return advisory.LockTx(t.Context(), second, advisory.TxOptions{Wait: short}, agents.ID(1))
		}

		require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, agents.ID(1)))
		for _, call := range []func() error{do(l), lockTx} {
			timeout := timeoutOf(t, call)
			require.Equal(t, tx.Conn().PgConn().PID(), timeout.Holder.PID)
			require.ErrorContains(t, timeout, ", in a transaction of this process; if that is the caller's own transaction, it has the lock already")
		}
		require.NoError(t, tx.Commit(t.Context()))

		lock, err := l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		for _, call := range []func() error{do(other), lockTx} {
			timeout := timeoutOf(t, call)
			require.Equal(t, lock.PID(), timeout.Holder.PID)
			require.ErrorContains(t, timeout, ", of another Locker of this process; if the holder is an outer call of this one, pass it the context of Do or Lock.Context")
		}
		require.NoError(t, lock.Release())

		// The control: the same session in a later transaction, without LockTx, could be anybody's.
		plain, err := conn.Begin(t.Context())
		require.NoError(t, err)
		_, err = plain.Exec(t.Context(), "SELECT pg_advisory_xact_lock(1, 1)")
		require.NoError(t, err)
		for _, call := range []func() error{do(l), lockTx} {
			timeout := timeoutOf(t, call)
			require.Equal(t, conn.Conn().PgConn().PID(), timeout.Holder.PID)
			require.NotContains(t, timeout.Error(), "this process")
		}
		require.NoError(t, plain.Rollback(t.Context()))
	})
}
