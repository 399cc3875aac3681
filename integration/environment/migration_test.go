//go:build integration

package environment

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
)

const createIndex = "CREATE INDEX CONCURRENTLY items_by_name ON items (name)"

// newTable returns a connection to a new database with a table.
func newTable(t *testing.T) (dsn string, conn *pgx.Conn) {
	t.Helper()
	dsn = pgtest.DSN(t)
	conn = pgtest.Connect(t, dsn)
	execute(t, conn, "CREATE TABLE items AS SELECT n AS id, n::text AS name FROM generate_series(1, 1000) AS n")
	return dsn, conn
}

func TestAnIndexIsCreatedConcurrentlyWhileLockersWait(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn, work := newTable(t)
		lock := acquire(t, open(t, advisory.Config{DSN: dsn}), agents.ID(1))
		finish := startWaiters(t, dsn, 10)
		requireLocks(t, work, 1, 10)
		requireIndex(t, work)
		require.NoError(t, lock.Release())
		finish()
	})
}

func TestAnIndexIsCreatedConcurrentlyUnderTheLockThatOthersWaitFor(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn, work := newTable(t)
		finish := func() {}
		err := open(t, advisory.Config{DSN: dsn}).Do(t.Context(), agents.ID(1), func(ctx context.Context) error {
			finish = startWaiters(t, dsn, 3)
			requireLocks(t, work, 1, 3)
			requireIndex(t, work)
			return ctx.Err()
		})
		require.NoError(t, err)
		finish()
	})
}

// The control: a plain wait is one statement with one snapshot, for which CREATE
// INDEX CONCURRENTLY waits.
func TestAnIndexIsNotCreatedWhilePlainWaitersWait(t *testing.T) {
	t.Parallel()
	dsn, work := newTable(t)
	holder := pgtest.Connect(t, dsn)
	execute(t, holder, "SELECT pg_advisory_lock(1)")
	var wg sync.WaitGroup
	for range 10 {
		waiter := pgtest.Connect(t, dsn)
		wg.Go(func() { _, _ = waiter.Exec(t.Context(), "SELECT pg_advisory_lock(1), pg_advisory_unlock(1)") })
	}
	requireLocks(t, work, 1, 10)
	execute(t, work, "SET statement_timeout = '3s'")
	_, err := work.Exec(t.Context(), createIndex)
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "57014", pgErr.Code, "canceled by statement_timeout")
	execute(t, holder, "SELECT pg_advisory_unlock(1)")
	wg.Wait()
}

// A plain waiter beside the Locker is the control: its snapshot stays.
func TestAWaiterDoesNotKeepAnOldSnapshot(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn, work := newTable(t)
		lock := acquire(t, open(t, advisory.Config{DSN: dsn}), agents.ID(1))
		plain := pgtest.Connect(t, dsn)
		k1, k2, ok := agents.ID(1).Tag().Pair()
		require.True(t, ok)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = plain.Exec(t.Context(), "SELECT pg_advisory_lock($1, $2)", k1, k2) })
		requireLocks(t, work, 1, 1)
		finish := startWaiters(t, dsn, 1)
		requireLocks(t, work, 1, 2)

		plainPID := plain.PgConn().PID()
		var pid uint32
		await.Until(t, patience, func() bool {
			return work.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'waiter' AND wait_event = 'advisory'").Scan(&pid) == nil
		})
		var old, plainOld string
		await.Until(t, patience, func() bool { old = snapshot(t, work, pid); return old != "" })
		await.Until(t, patience, func() bool { plainOld = snapshot(t, work, plainPID); return plainOld != "" })
		execute(t, work, "SELECT pg_current_xact_id()") // a new snapshot has a new xmin
		await.Until(t, patience, func() bool { return snapshot(t, work, pid) != old })
		require.Equal(t, plainOld, snapshot(t, work, plainPID))

		execute(t, work, "SELECT pg_terminate_backend($1)", plainPID)
		wg.Wait()
		require.NoError(t, lock.Release())
		finish()
	})
}

// snapshot is the oldest transaction that a backend's snapshot needs, or "".
func snapshot(t *testing.T, conn *pgx.Conn, pid uint32) (xmin string) {
	t.Helper()
	err := conn.QueryRow(t.Context(), "SELECT coalesce(backend_xmin::text, '') FROM pg_stat_activity WHERE pid = $1", pid).Scan(&xmin)
	require.NoError(t, err)
	return xmin
}

// startWaiters lets n Lockers wait for the lock. finish waits until all have had
// it.
func startWaiters(t *testing.T, dsn string, n int) (finish func()) {
	t.Helper()
	var outcomes []<-chan error
	for range n {
		l := open(t, advisory.Config{DSN: dsn, ApplicationName: "waiter"})
		done := make(chan error, 1)
		outcomes = append(outcomes, done)
		go func() { done <- l.Do(t.Context(), agents.ID(1), func(ctx context.Context) error { return ctx.Err() }) }()
	}
	return func() {
		t.Helper()
		for _, done := range outcomes {
			require.NoError(t, await.Receive(t, patience, done, "a waiter did not get the lock"))
		}
	}
}

// requireIndex creates the index and looks at what has come of it.
func requireIndex(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	start := time.Now()
	_, err := conn.Exec(ctx, createIndex)
	require.NoError(t, err)
	t.Logf("created in %v; a wait step lasts 900ms", time.Since(start))
	var valid, invalid int
	require.NoError(t, conn.QueryRow(ctx, `SELECT count(*) FILTER (WHERE indisvalid), count(*) FILTER (WHERE NOT indisvalid)
		FROM pg_index WHERE indrelid = 'items'::regclass`).Scan(&valid, &invalid))
	require.Equal(t, 1, valid)
	require.Zero(t, invalid)
}
