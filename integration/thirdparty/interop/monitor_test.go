package interop_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

func TestTheMonitorShowsTheLocksOfOtherTools(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	m, err := monitor.Open(monitor.Config{DSN: dsn})
	require.NoError(t, err)
	defer m.Close()
	database := pgtest.Connect(t, dsn).Config().Database
	for name, s := range map[string]statement{"Rails": statements["Rails: migrations"], "a pair": statements["hand-written SQL: two ints"]} {
		conn, refused, err := s.lock(t.Context(), dsn+"&application_name=peer")
		require.NoError(t, err)
		require.False(t, refused)
		await.Until(t, patience, func() bool { // pictures are shared for a quarter of a second
			snapshot, err := m.Snapshot(t.Context())
			return assert.NoError(t, err) && slices.ContainsFunc(snapshot.Locks, func(l monitor.Lock) bool {
				return l.PID == conn.PgConn().PID() && l.Granted && l.ApplicationName == "peer" && l.Key.Text == s.key(database).String()
			})
		}, name)
		require.NoError(t, conn.Close(t.Context()))
	}
}

// docs/reference/keys-of-other-tools.md: the index waits for the tool, and the tool for the lock under which the index is built.
func TestNoIndexIsBuiltConcurrentlyUnderALockThatAToolWaitsForInOneStatement(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn, tool := pgtest.Connect(t, dsn), pgtest.Connect(t, dsn)
	_, err := conn.Exec(t.Context(), "CREATE TABLE rows (id int)")
	require.NoError(t, err)
	locks, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn})
	require.NoError(t, err)
	defer locks.Close()
	lock, err := locks.Acquire(t.Context(), namespace.SingleRaw(12345))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := tool.Exec(context.WithoutCancel(t.Context()), "SELECT pg_advisory_lock(12345)")
		ended <- err
	}()
	waiting(t, conn, namespace.SingleRaw(12345), 1)
	_, err = conn.Exec(t.Context(), "SET lock_timeout = '1500ms'") // longer than deadlock_timeout
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE INDEX CONCURRENTLY built ON rows (id)")
	require.ErrorContains(t, err, "55P03", "lock_timeout ends it, and no search for deadlocks did")
	require.NoError(t, lock.Release())
	require.NoError(t, <-ended)
}
