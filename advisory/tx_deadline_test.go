package advisory_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestLockTxEndsItsWaitBeforeItsContextDoes(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l, tx := open(t, advisory.Config{DSN: dsn}), begin(t, dbtest.Pool(t, dsn))
		lock, err := l.Acquire(t.Context(), agents.ID(2))
		require.NoError(t, err)
		before := settingsOf(t, tx)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err = advisory.LockTx(ctx, tx, advisory.TxOptions{}, agents.ID(1), agents.ID(2))
		var timeout *advisory.TimeoutError
		require.ErrorAs(t, err, &timeout)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, advisory.ErrHeld)
		require.NotNil(t, timeout.Holder)
		require.Equal(t, lock.PID(), timeout.Holder.PID)
		require.Equal(t, before, settingsOf(t, tx), "the transaction goes on")
		require.Equal(t, 2, locks(t, dbtest.Pool(t, dsn), true), "it has the lock that it got before")
		require.NoError(t, lock.Release())
		require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, agents.ID(2)))
		require.NoError(t, tx.Commit(t.Context()))
	})
}

// A lateTx sends the wait, and what comes after it, when the deadline of the call's context is over.
type lateTx struct {
	pgx.Tx
	ctx  context.Context
	late *bool
}

func (tx lateTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if *tx.late = *tx.late || strings.HasPrefix(sql, "DO "); *tx.late {
		<-tx.ctx.Done()
	}
	return tx.Tx.Exec(ctx, sql, args...)
}

func TestAStatementOfLockTxMayBeLate(t *testing.T) {
	t.Parallel()
	work := dbtest.Pool(t, pgtest.DSN(t))
	holder, tx := begin(t, work), begin(t, work)
	require.NoError(t, advisory.LockTx(t.Context(), holder, advisory.TxOptions{}, agents.ID(1)))
	var err error
	for late := false; !late; { // on a busy machine the deadline can come before the wait is sent
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err = advisory.LockTx(ctx, lateTx{tx, ctx, &late}, advisory.TxOptions{}, agents.ID(1))
		cancel()
	}
	var timeout *advisory.TimeoutError
	require.ErrorAs(t, err, &timeout)
	require.NotNil(t, timeout.Holder)
	require.NoError(t, tx.Commit(t.Context()), "the transaction is usable")
}

func TestLockTxOfAContextThatHasEndedSendsNothing(t *testing.T) {
	t.Parallel()
	tx := begin(t, dbtest.Pool(t, pgtest.DSN(t)))
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	require.ErrorIs(t, advisory.LockTx(ctx, tx, advisory.TxOptions{}, agents.ID(1)), context.DeadlineExceeded)
	require.NoError(t, tx.Commit(t.Context()))
}

// LockTx documents that the driver ends the transaction if the context is canceled. That also holds
// for a context with a deadline.
func TestACanceledLockTxEndsTheTransaction(t *testing.T) {
	t.Parallel()
	work := dbtest.Pool(t, pgtest.DSN(t))
	for _, timeout := range []time.Duration{0, time.Hour} {
		holder, tx := begin(t, work), begin(t, work)
		require.NoError(t, advisory.LockTx(t.Context(), holder, advisory.TxOptions{}, agents.ID(1)))
		ctx, cancel := context.WithCancel(t.Context())
		if timeout != 0 {
			ctx, cancel = context.WithTimeout(ctx, timeout)
		}
		defer cancel()
		done := started(func() error { return advisory.LockTx(ctx, tx, advisory.TxOptions{}, agents.ID(1)) })
		eventually(t, func() bool { return locks(t, work, false) == 1 })
		cancel()
		err := <-done
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, advisory.ErrTimeout)
		require.Error(t, tx.Commit(t.Context()))
		require.NoError(t, holder.Rollback(t.Context()))
	}
}

func TestLockTxRespectsTheTransactionsLockTimeout(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		for _, options := range []advisory.TxOptions{{Wait: advisory.NoTimeout}, {Wait: advisory.NoTimeout, Shared: true}} {
			dsn := pgtest.DSN(t)
			l, tx := open(t, advisory.Config{DSN: dsn}), begin(t, dbtest.Pool(t, dsn))
			lock, err := l.Acquire(t.Context(), agents.ID(1))
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), "SET LOCAL lock_timeout = '100ms'")
			require.NoError(t, err)
			before := settingsOf(t, tx)
			err = advisory.LockTx(t.Context(), tx, options, agents.ID(1))
			var timeout *advisory.TimeoutError
			require.ErrorAs(t, err, &timeout)
			require.NotNil(t, timeout.Holder)
			require.Equal(t, lock.PID(), timeout.Holder.PID)
			require.ErrorContains(t, err, "(the transaction's lock_timeout of 100ms ended the wait)")
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, before, settingsOf(t, tx))
			options.Wait = 50 * time.Millisecond
			err = advisory.LockTx(t.Context(), tx, options, agents.ID(1))
			require.ErrorIs(t, err, advisory.ErrTimeout)
			require.NotContains(t, err.Error(), "lock_timeout", "the shorter of the two ends it")
			require.NoError(t, lock.Release())
			require.NoError(t, advisory.LockTx(t.Context(), tx, options, agents.ID(1)))
			require.Equal(t, before, settingsOf(t, tx))
			require.NoError(t, tx.Rollback(t.Context()))
		}
	})
}

// Otherwise a role's default, meant for statements on tables, would end each wait for a key.
func TestADefaultLockTimeoutDoesNotEndTheWaitOfLockTx(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	_, err := dbtest.Pool(t, dsn).Exec(t.Context(), "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lock_timeout = 5', current_database()); END $$")
	require.NoError(t, err)
	work := dbtest.Pool(t, dsn)
	holder, tx := begin(t, work), begin(t, work)
	require.NoError(t, advisory.LockTx(t.Context(), holder, advisory.TxOptions{}, agents.ID(1)))
	before := settingsOf(t, tx)
	require.Contains(t, before, "5ms")
	for range 2 {
		err := advisory.LockTx(t.Context(), tx, advisory.TxOptions{Wait: 100 * time.Millisecond}, agents.ID(1))
		require.ErrorIs(t, err, advisory.ErrTimeout)
		require.NotContains(t, err.Error(), "lock_timeout")
		require.Equal(t, before, settingsOf(t, tx))
	}
	done := started(func() error {
		return advisory.LockTx(t.Context(), tx, advisory.TxOptions{Wait: advisory.NoTimeout}, agents.ID(1))
	})
	eventually(t, func() bool { return locks(t, work, false) == 1 })
	require.NoError(t, holder.Rollback(t.Context()))
	require.NoError(t, <-done)
	require.Equal(t, before, settingsOf(t, tx))
	_, err = tx.Exec(t.Context(), "SET LOCAL lock_timeout = 6")
	require.NoError(t, err)
	other := begin(t, work)
	require.NoError(t, advisory.LockTx(t.Context(), other, advisory.TxOptions{}, agents.ID(2)))
	require.ErrorContains(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, agents.ID(2)), "lock_timeout of 6ms")
}
