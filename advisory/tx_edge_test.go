package advisory_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

func TestLockTxOnAStandbyIsRefused(t *testing.T) {
	t.Parallel()
	primary := pgtest.StartServer(t, pgserver.Options{})
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Close()) })
	for _, server := range []*pgserver.Server{standby, primary} {
		tx := begin(t, dbtest.Pool(t, server.DSN("")))
		for name, err := range map[string]error{
			"wait": advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, agents.ID(1)), "wait of readers": advisory.LockTx(t.Context(), tx, advisory.TxOptions{Shared: true}, agents.ID(2)),
			"try": advisory.LockTx(t.Context(), tx, advisory.TxOptions{Try: true}, agents.ID(3), agents.ID(4)), "try of readers": advisory.LockTx(t.Context(), tx, advisory.TxOptions{Shared: true, Try: true}, agents.ID(5)),
		} {
			if server == primary {
				require.NoError(t, err, "the control: %s on the primary", name)
				continue
			}
			require.ErrorIs(t, err, advisory.ErrStandby, name)
			require.ErrorContains(t, err, "begin the transaction on the primary")
		}
		var n int
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&n), "the transaction goes on")
		require.Equal(t, map[bool]int{true: 5, false: 0}[server == primary], n)
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

// settingsOf are the settings that a wait changes.
func settingsOf(t *testing.T, tx pgx.Tx) (settings string) {
	t.Helper()
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT concat_ws(' ', current_setting('lock_timeout'), current_setting('statement_timeout'),
		current_setting('client_connection_check_interval'))`).Scan(&settings))
	return settings
}

func TestLockTxWaitsForLongerThanTheStatementTimeout(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l, work := open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		lock, err := l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		tx := begin(t, work)
		_, err = tx.Exec(t.Context(), "SET LOCAL statement_timeout = '2s'")
		require.NoError(t, err)
		before := settingsOf(t, tx)
		require.ErrorIs(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{Wait: 3 * time.Second}, agents.ID(1)), advisory.ErrTimeout)
		require.Equal(t, before, settingsOf(t, tx))
		done := started(func() error { return advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, agents.ID(1)) })
		eventually(t, func() bool {
			var late bool
			err := work.QueryRow(t.Context(), `SELECT clock_timestamp() > waitstart + interval '3s' FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&late)
			return err == nil && late
		})
		require.NoError(t, lock.Release())
		require.NoError(t, <-done)
		require.Equal(t, before, settingsOf(t, tx))

		var e *pgconn.PgError
		_, err = tx.Exec(t.Context(), "SELECT pg_sleep(60)")
		require.ErrorAs(t, err, &e, "the control: other statements have it")
		require.Equal(t, "57014", e.Code)
	})
}

// A canceledTx cancels a context before the wait begins, and after its settings were made.
type canceledTx struct {
	pgx.Tx
	cancel context.CancelFunc
}

func (tx canceledTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if strings.HasPrefix(sql, "DO ") {
		tx.cancel()
	}
	return tx.Tx.Exec(ctx, sql, args...)
}

func TestAWaitThatIsCanceledBeforeItBeginsLeavesTheSettingsAsTheyWere(t *testing.T) {
	t.Parallel()
	work := dbtest.Pool(t, pgtest.DSN(t))
	holder, tx := begin(t, work), begin(t, work)
	require.NoError(t, advisory.LockTx(t.Context(), holder, advisory.TxOptions{}, agents.ID(1)))
	_, err := tx.Exec(t.Context(), "SET LOCAL statement_timeout = '123456ms'")
	require.NoError(t, err)
	before := settingsOf(t, tx)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	require.ErrorIs(t, advisory.LockTx(ctx, canceledTx{tx, cancel}, advisory.TxOptions{}, agents.ID(1)), context.Canceled)
	require.Equal(t, before, settingsOf(t, tx))
}

func TestErrorsNameAPreparedTransaction(t *testing.T) {
	t.Parallel()
	dsn := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_prepared_transactions": "2"}}).DSN("")
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		work, name, key := dbtest.Pool(t, dsn), strings.ReplaceAll(t.Name(), "/", " "), agents.ID(1)
		if strings.Contains(name, "multiplexed") {
			key = agents.ID(2)
		}
		tx := begin(t, work)
		require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, key))
		_, err := tx.Exec(t.Context(), "PREPARE TRANSACTION '"+name+"'")
		require.NoError(t, err)
		l, other := open(t, advisory.Config{DSN: dsn}), begin(t, work)
		try := func() error {
			var held *advisory.HeldError
			var err error
			eventually(t, func() bool { // a busy machine does not always say who
				_, err = l.TryAcquire(t.Context(), key)
				return errors.As(err, &held) && held.Holder != nil
			})
			return err
		}
		for _, err := range []error{try(), advisory.LockTx(t.Context(), other, advisory.TxOptions{Try: true}, key)} {
			var held *advisory.HeldError
			require.ErrorAs(t, err, &held)
			require.NotNil(t, held.Holder)
			require.Equal(t, name, held.Holder.Prepared)
			require.Zero(t, held.Holder.PID)
			require.ErrorContains(t, err, `by prepared transaction "`+name+`", prepared at 20`)
			require.ErrorContains(t, err, "until COMMIT PREPARED or ROLLBACK PREPARED")
			require.NotContains(t, err.Error(), "backend")
		}
		_, err = work.Exec(t.Context(), "ROLLBACK PREPARED '"+name+"'")
		require.NoError(t, err)
		require.NoError(t, advisory.LockTx(t.Context(), other, advisory.TxOptions{Try: true}, key))
		require.NoError(t, other.Rollback(t.Context()))
	})
}

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
