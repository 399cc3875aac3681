package interop_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const patience = await.Patience

// A peer is another tool that locks.
type peer struct {
	// key is what it locks in a database.
	key func(database string) namespace.Key
	// hold has it take its lock, and keep it until release is called.
	hold func(t *testing.T, dsn string) (release func())
	// try has it take its lock, and give it back. It is refused if the tool says that somebody has it.
	try func(ctx context.Context, dsn string) (refused bool, err error)
	// waits tells that the tool waits in pg_advisory_lock; else it is refused.
	waits bool
}

// require proves, in a database of its own, that the tool and pglatch exclude each other.
func (p peer) require(t *testing.T) {
	t.Helper()
	dsn := pgtest.DSN(t)
	watcher := pgtest.Connect(t, dsn)
	key := p.key(watcher.Config().Database)
	locks, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, Wait: patience})
	require.NoError(t, err)
	defer locks.Close()

	release := p.hold(t, dsn)
	ran, err := locks.DoOrSkip(t.Context(), key, func(context.Context) error { return nil })
	require.NoError(t, err)
	require.False(t, ran, "the tool has the lock")
	var held *advisory.HeldError
	await.Until(t, patience, func() bool { // a busy machine does not always say who
		_, err = locks.TryAcquire(t.Context(), key)
		return assert.ErrorAs(t, err, &held) && held.Holder != nil
	}, "the error names nobody")
	require.Equal(t, holder(t, watcher, key), held.Holder.PID, "the error names the tool's session")
	acquired := make(chan error, 1)
	go func() {
		acquired <- locks.Do(t.Context(), key, func(context.Context) error { return nil })
	}()
	waiting(t, watcher, key, 1)
	release()
	require.NoError(t, <-acquired, "the lock came when the tool let it go")

	lock, err := locks.Acquire(t.Context(), key)
	require.NoError(t, err)
	type outcome struct {
		refused bool
		err     error
	}
	tried := make(chan outcome, 1)
	try := func() { refused, err := p.try(t.Context(), dsn); tried <- outcome{refused, err} }
	go try()
	if p.waits {
		waiting(t, watcher, key, 1)
		require.Empty(t, tried)
		require.NoError(t, lock.Release())
		require.Equal(t, outcome{}, <-tried, "the tool got the lock when pglatch let it go")
	} else {
		require.Equal(t, outcome{refused: true}, <-tried)
		require.NoError(t, lock.Release())
	}

	// The control: another lock is not in the way of the tool.
	other, err := locks.Acquire(t.Context(), namespace.Must(1, "other").ID(1))
	require.NoError(t, err)
	try()
	require.Equal(t, outcome{}, <-tried)
	require.NoError(t, other.Release())
}

const ofKey = ` FROM pg_locks WHERE locktype = 'advisory' AND classid = $1 AND objid = $2 AND objsubid = $3
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND `

// holder waits until one session holds the key, and returns its number.
func holder(t *testing.T, conn *pgx.Conn, key namespace.Key) (pid uint32) {
	t.Helper()
	tag := key.Tag()
	await.Until(t, patience, func() bool {
		err := conn.QueryRow(t.Context(), "SELECT COALESCE(max(pid), 0)"+ofKey+"granted", tag.ClassID, tag.ObjID, tag.ObjSubID).Scan(&pid)
		return assert.NoError(t, err) && pid != 0
	}, "nobody holds %v", key)
	return pid
}

// waiting waits until n sessions wait for the key.
func waiting(t *testing.T, conn *pgx.Conn, key namespace.Key, n int) {
	t.Helper()
	tag := key.Tag()
	await.Until(t, patience, func() bool {
		var found int
		err := conn.QueryRow(t.Context(), "SELECT count(*)"+ofKey+"NOT granted", tag.ClassID, tag.ObjID, tag.ObjSubID).Scan(&found)
		return assert.NoError(t, err) && found == n
	}, "%d sessions wait for %v", n, key)
}

// A gate is a table at which a migration waits, until open is called.
func closeGate(t *testing.T, dsn string) (open func()) {
	t.Helper()
	conn := pgtest.Connect(t, dsn)
	_, err := conn.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS gate ()")
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE gate")
	require.NoError(t, err)
	return func() { assert.NoError(t, tx.Rollback(t.Context())) }
}

// background runs f until release, which waits for its end.
func background(t *testing.T, f func() error, open func()) (release func()) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	return func() {
		open()
		if err := <-ended; err != nil {
			assert.NoError(t, fmt.Errorf("the tool: %w", err))
		}
	}
}
