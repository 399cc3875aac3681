package clitest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
)

// Connect opens a session with an application_name.
func Connect(t *testing.T, dsn, application string) *pgx.Conn {
	t.Helper()
	cc, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	cc.RuntimeParams["application_name"] = application
	conn, err := pgx.ConnectConfig(t.Context(), cc)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// Execute executes one statement.
func Execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// WaitFor makes conn wait in a statement until the end of the test, and returns when conn is in the
// server's queue.
func WaitFor(t *testing.T, dsn string, conn *pgx.Conn, sql string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	pid := conn.PgConn().PID()
	go func() {
		defer close(ended)
		_, _ = conn.Exec(ctx, sql)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = conn.Close(context.WithoutCancel(ctx))
		<-conn.PgConn().CleanupDone()
	})
	look := Connect(t, dsn, "look")
	await.Until(t, await.Soon, func() bool {
		var waits bool
		err := look.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted AND waitstart IS NOT NULL)`, pid).Scan(&waits)
		return err == nil && waits
	}, "%s does not wait", sql)
	require.NoError(t, look.Close(t.Context()))
}

// Holders returns the pids of the database's sessions that hold advisory locks.
func Holders(t *testing.T, conn *pgx.Conn) []int {
	t.Helper()
	rows, err := conn.Query(context.Background(), `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	require.NoError(t, err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(t, err)
	return pids
}

// RequireWaiting waits until a session is in the queue for a lock.
func RequireWaiting(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	await.Until(t, await.Patience, func() bool {
		var waits bool
		err := conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&waits)
		return err == nil && waits
	}, "nobody waits")
}

// Terminate ends a session of PostgreSQL.
func Terminate(t *testing.T, conn *pgx.Conn, pid int) {
	t.Helper()
	var done bool
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_terminate_backend($1)", pid).Scan(&done))
	require.True(t, done)
}
