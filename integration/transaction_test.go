//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

// lockInATransaction holds a lock by LockTx and, when it was stopped and woken, writes and commits.
func lockInATransaction(id int64, idle string) func(ctx context.Context, dsn string) error {
	return func(ctx context.Context, dsn string) error {
		woken := make(chan os.Signal, 1)
		signal.Notify(woken, syscall.SIGCONT)
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		if err := advisory.LockTx(ctx, tx, advisory.TxOptions{}, agents.ID(id)); err != nil {
			return err
		}
		// Not before, so that a pause until here does not end the transaction.
		if _, err := tx.Exec(ctx, "SELECT set_config('idle_in_transaction_session_timeout', $1, true)", idle); err != nil {
			return err
		}
		fmt.Println("held")
		<-woken
		_, err = tx.Exec(ctx, "INSERT INTO writes VALUES ($1)", id)
		if err == nil {
			err = tx.Commit(ctx)
		}
		fmt.Println("woken", err)
		return nil
	}
}

// A lock of LockTx belongs to the caller's transaction, and only what bounds that bounds the lock.
func TestALockTxOfAStoppedProcessIsFreeWhenTheServerEndsItsTransaction(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		judge := pgtest.Connect(t, dsn)
		_, err := judge.Exec(t.Context(), "CREATE TABLE writes (id bigint)")
		require.NoError(t, err)
		bounded, control := start(t, "transaction", dsn), start(t, "transaction unbounded", dsn)
		for _, holder := range []*proctest.Process{bounded, control} {
			holder.Says("held")
			holder.Signal(syscall.SIGSTOP)
		}
		l := open(t, dsn, session.DefaultTTL)
		lock := acquire(t, l, agents.ID(1))
		_, err = l.TryAcquire(t.Context(), agents.ID(2))
		require.ErrorIs(t, err, advisory.ErrHeld, "the control: its transaction has no bound")

		bounded.Signal(syscall.SIGCONT)
		assert.NotContains(t, bounded.Says("woken"), "<nil>", "it writes nothing under the lock of another")
		control.Signal(syscall.SIGCONT)
		assert.Contains(t, control.Says("woken"), "<nil>")
		var ids []int64
		require.NoError(t, judge.QueryRow(t.Context(), "SELECT array_agg(id) FROM writes").Scan(&ids))
		assert.Equal(t, []int64{2}, ids)
		require.NoError(t, lock.Release())
		require.NoError(t, acquire(t, l, agents.ID(2)).Release())
	})
}
