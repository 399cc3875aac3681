//go:build integration

package integration

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
)

func TestTheLockOfAKilledHolderIsFree(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		holder := start(t, "hold", dsn)
		holder.Says("held")
		l := open(t, dsn, session.DefaultTTL)
		_, err := l.TryAcquire(t.Context(), agents.ID(1))
		require.ErrorIs(t, err, advisory.ErrHeld)
		holder.Signal(syscall.SIGKILL)
		require.NoError(t, acquire(t, l, agents.ID(1)).Release())
	})
}

func TestTheQueueMovesOnPastAKilledWaiter(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		judge := pgtest.Connect(t, dsn)
		l := open(t, dsn, session.DefaultTTL)
		lock := acquire(t, l, agents.ID(1))
		first := start(t, "wait", dsn)
		first.Says("waiting")
		requireLocks(t, judge, 1, 1)
		second := start(t, "wait", dsn)
		requireLocks(t, judge, 1, 2)
		first.Signal(syscall.SIGKILL)
		require.NoError(t, lock.Release())
		second.Says("held")
		requireLocks(t, judge, 1, 0) // nothing stays with the dead one
		second.Signal(syscall.SIGKILL)
		require.NoError(t, acquire(t, l, agents.ID(1)).Release())
	})
}
