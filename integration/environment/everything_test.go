//go:build integration

package environment

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/namespace"
)

// requireEverythingWorks uses a path to the server in all the ways that depend on
// it. The connection goes straight to the same database.
func requireEverythingWorks(t *testing.T, dsn string, direct *pgx.Conn) {
	t.Helper()
	a, b := open(t, advisory.Config{DSN: dsn, ApplicationName: "holder"}), open(t, advisory.Config{DSN: dsn})
	requireExclusion(t, a, b, direct)
	requireCancel(t, a, b, direct)

	all, err := a.AcquireAll(t.Context(), agents.ID(3), agents.ID(1), agents.ID(2))
	require.NoError(t, err)
	requireLocks(t, direct, 3, 0)
	_, err = b.TryAcquire(t.Context(), agents.ID(2))
	require.ErrorIs(t, err, advisory.ErrHeld)
	require.NoError(t, all.Release())
	requireLocks(t, direct, 0, 0)

	lock := acquire(t, a, agents.ID(1))
	execute(t, direct, "SELECT pg_terminate_backend($1)", pidOf(t, a))
	requireLost(t, lock)
	require.NoError(t, acquire(t, b, agents.ID(1)).Release())
	require.NoError(t, acquire(t, a, agents.ID(1)).Release())
	requireLocks(t, direct, 0, 0)
}

func requireExclusion(t *testing.T, a, b *advisory.Locker, direct *pgx.Conn) {
	t.Helper()
	err := a.Do(t.Context(), agents.ID(1), func(ctx context.Context) error {
		requireLocks(t, direct, 1, 0)
		holder := requireHeld(t, b, agents.ID(1))
		require.Equal(t, pidOf(t, a), holder.PID)
		require.Equal(t, "holder", holder.ApplicationName)
		return ctx.Err()
	})
	require.NoError(t, err)
	requireLocks(t, direct, 0, 0)

	lock := acquire(t, a, agents.ID(1))
	waiting := wait(t.Context(), b, agents.ID(1))
	requireLocks(t, direct, 1, 1)
	require.NoError(t, lock.Release())
	next := receive(t, waiting)
	require.NoError(t, next.err)
	require.NoError(t, next.lock.Release())
	requireLocks(t, direct, 0, 0)
}

// requireHeld tries a lock that another process holds, and returns who that is.
func requireHeld(t *testing.T, l *advisory.Locker, key namespace.Key) *advisory.Holder {
	t.Helper()
	var held *advisory.HeldError
	await.Until(t, patience, func() bool { // a busy machine does not always say who
		_, err := l.TryAcquire(t.Context(), key)
		require.ErrorAs(t, err, &held)
		return held.Holder != nil
	}, "the error names nobody")
	return held.Holder
}

func requireCancel(t *testing.T, a, b *advisory.Locker, direct *pgx.Conn) {
	t.Helper()
	lock := acquire(t, a, agents.ID(1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiting := wait(ctx, b, agents.ID(1))
	requireLocks(t, direct, 1, 1)
	cancel()
	require.ErrorIs(t, receive(t, waiting).err, context.Canceled)
	requireLocks(t, direct, 1, 0)
	require.NoError(t, lock.Release())
	requireLocks(t, direct, 0, 0)
}

// pidOf returns the backend that holds the Locker's only lock.
func pidOf(t *testing.T, l *advisory.Locker) uint32 {
	t.Helper()
	for held := range l.Held() {
		return held.PID
	}
	require.Fail(t, "nothing is held")
	return 0
}
