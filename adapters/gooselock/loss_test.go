package gooselock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/gooselock"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace/interop"
)

// slow is a migration that waits for a row lock of the test's, and then makes a table.
var slow = fstest.MapFS{
	"00001_slow.sql": {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\nUPDATE gate SET passed = true;\nCREATE TABLE late ();\n")},
}

// migrateAndLose runs slow, and ends the session of the lock in the middle. open lets the
// migration go on.
func migrateAndLose(t *testing.T, dsn string, option goose.ProviderOption) (conn *pgx.Conn, openGate func(), up <-chan error) {
	t.Helper()
	conn, gate := pgtest.Connect(t, dsn), pgtest.Connect(t, dsn)
	_, err := conn.Exec(t.Context(), "CREATE TABLE gate AS SELECT false AS passed")
	require.NoError(t, err)
	tx, err := gate.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE gate")
	require.NoError(t, err)
	ended := make(chan error, 1)
	p := newProvider(t, openDB(t, dsn), slow, option)
	go func() {
		_, err := p.Up(context.WithoutCancel(t.Context()))
		ended <- err
	}()
	await.Until(t, await.Patience, func() bool { return atGate(t, conn) == 1 })
	key, _ := interop.Goose().Tag().Single()
	var terminated int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND (classid::bigint << 32) + objid::bigint = $1 AND objsubid = 1
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, key).Scan(&terminated))
	require.Equal(t, 1, terminated)
	return conn, func() { assert.NoError(t, tx.Commit(t.Context())) }, ended
}

// atGate counts the migrations that wait at the gate.
func atGate(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE relation = 'gate'::regclass AND NOT granted").Scan(&n)
	assert.NoError(t, err)
	return n
}

func made(t *testing.T, conn *pgx.Conn) (yes bool) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT to_regclass('late') IS NOT NULL").Scan(&yes))
	return yes
}

func TestAMigrationEndsWithTheLossOfItsSessionLock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn, openGate, up := migrateAndLose(t, dsn, goose.WithSessionLocker(newSessionLocker(t, open(t, dsn), 0)))
	require.ErrorIs(t, <-up, advisory.ErrLost)
	await.Until(t, await.Patience, func() bool { return atGate(t, conn) == 0 }, "the server has canceled the statement")
	openGate()
	require.False(t, made(t, conn), "nothing after the statement that was canceled has run")
}

// The control: with a Locker nothing ends what runs, and the error says so afterwards.
func TestAMigrationOutlivesTheLossOfALockThatDoesNotKnowItsSession(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn, openGate, up := migrateAndLose(t, dsn, goose.WithLocker(newLocker(t, open(t, dsn), 0)))
	second := open(t, dsn)
	l, err := second.Acquire(t.Context(), interop.Goose()) // another replica may begin
	require.NoError(t, err)
	require.Equal(t, 1, atGate(t, conn), "while the first runs on")
	require.NoError(t, l.Release())
	openGate()
	require.ErrorIs(t, <-up, advisory.ErrLost)
	require.True(t, made(t, conn))
}

// Of one process no second migration begins beside one that has lost its lock and runs on.
func TestALostLockHoldsUpItsOwnProcessUntilItsMigrationHasEnded(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	l := newLocker(t, open(t, dsn), 5*time.Second)
	conn, openGate, up := migrateAndLose(t, dsn, goose.WithLocker(l))
	await.Until(t, await.Patience, func() bool {
		granted, _, err := pgtest.CountLocks(t.Context(), conn, interop.Goose())
		return assert.NoError(t, err) && granted == 0
	})
	require.ErrorIs(t, l.Lock(t.Context(), nil), advisory.ErrTimeout)
	openGate()
	require.ErrorIs(t, <-up, advisory.ErrLost)
	require.NoError(t, l.Lock(t.Context(), nil))
	require.NoError(t, l.Unlock(t.Context(), nil))
}

// hidden makes connections that do not say that they are pgx's.
type hidden struct{ driver.Connector }

func (h hidden) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := h.Connector.Connect(ctx)
	return struct{ driver.Conn }{conn}, err
}

func TestASessionLockerRefusesAConnectionThatItCannotEnd(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	db := sql.OpenDB(hidden{stdlib.GetConnector(*config)})
	defer db.Close()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	l := newSessionLocker(t, open(t, dsn), 0)
	require.ErrorIs(t, l.SessionLock(t.Context(), conn), gooselock.ErrDriver)
	require.NoError(t, conn.Close())
	require.ErrorIs(t, l.SessionLock(t.Context(), conn), sql.ErrConnDone)
	granted, waiters, err := pgtest.CountLocks(t.Context(), pgtest.Connect(t, dsn), interop.Goose())
	require.NoError(t, err)
	require.Zero(t, granted+waiters)
}
