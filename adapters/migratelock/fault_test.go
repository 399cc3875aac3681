package migratelock_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/migratelock"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// The session of the lock ends in the middle of a migration: no other replica begins until that
// is over, and this one begins no other.
func TestNoTwoReplicasMigrateWhenTheLocksSessionEnds(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	openGate := gate(t, dsn)
	conn := pgtest.Connect(t, dsn)
	driver := ours(t, dsn, nil)
	first, second := replica(t, driver, gated), replica(t, ours(t, dsn, nil), gated)
	ended := up(first)
	atGate(t, conn)
	others := up(second)
	locked(t, conn, key, 1, 1)
	tag := key.Tag()
	_, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND classid = $1 AND objid = $2 AND objsubid = $3 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
		tag.ClassID, tag.ObjID, tag.ObjSubID)
	require.NoError(t, err)
	locked(t, conn, theirs(t, conn), 1, 1) // the second has the first lock, and waits for the driver's
	await.Until(t, await.Patience, func() bool { return driver.LockLost() != nil }, "on a busy machine it learns that later")
	openGate()
	require.ErrorIs(t, <-ended, advisory.ErrLost)
	require.NoError(t, <-others, "the second applied what the first did not begin")
	require.True(t, index(t, conn))
}

// A replica that was not changed yet has the driver's lock only.
func TestReplicasOfBothKindsExcludeEachOther(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	openGate := gate(t, dsn)
	conn := pgtest.Connect(t, dsn)
	old, changed := replica(t, plain(t, dsn), gated), replica(t, ours(t, dsn, nil), gated)
	ended := up(old)
	atGate(t, conn)
	others := up(changed)
	locked(t, conn, theirs(t, conn), 1, 1)
	openGate()
	require.NoError(t, <-ended, "the index is built, because the other waits in steps")
	require.ErrorIs(t, <-others, migrate.ErrNoChange)
	require.True(t, index(t, conn))

	holder, waiter := ours(t, dsn, nil), plain(t, dsn)
	require.NoError(t, holder.Lock())
	waited := make(chan error, 1)
	go func() { waited <- waiter.Lock() }()
	locked(t, conn, theirs(t, conn), 1, 1)
	require.NoError(t, holder.Unlock())
	require.NoError(t, <-waited)

	short := make(chan error, 1)
	d := ours(t, dsn, func(c *migratelock.Config) {
		c.Timeout = 3 * time.Second
		c.Open = func() (database.Driver, error) { return bare{waiter}, nil }
	})
	go func() { short <- d.Lock() }() // ends although the old kind does not let go
	require.ErrorIs(t, <-short, database.ErrLocked)
}

// bare is a driver that another one uses too, so that it is not closed twice.
type bare struct{ database.Driver }

func (bare) Close() error { return nil }

// flaky is a driver whose first wait for its lock times out at the server. It writes down what it is asked.
type flaky struct {
	database.Driver
	waits int
	asked []string
}

func (f *flaky) Lock() error {
	f.asked = append(f.asked, "lock")
	if f.waits++; f.waits == 1 {
		return &database.Error{OrigErr: &pgconn.PgError{Code: "55P03"}}
	}
	return nil
}

func (f *flaky) Unlock() error { f.asked = append(f.asked, "unlock"); return nil }
func (f *flaky) Close() error  { return nil }

func (f *flaky) Run(r io.Reader) error {
	statement, err := io.ReadAll(r)
	f.asked = append(f.asked, string(statement))
	return err
}

// PostgreSQL can grant a lock in the moment in which it ends the wait with an error.
func TestALockThatCameWithAnErrorIsGivenBackBeforeTheNextTry(t *testing.T) {
	t.Parallel()
	f := &flaky{}
	d := ours(t, pgtest.DSN(t), func(c *migratelock.Config) {
		c.Open = func() (database.Driver, error) { return f, nil }
	})
	require.NoError(t, d.Lock())
	require.Len(t, f.asked, 6)
	require.Equal(t, []string{"lock", "SELECT pg_advisory_unlock_all()", "lock"}, f.asked[2:5])
	require.Contains(t, f.asked[5], "current_setting('pglatch.lock_timeout')")
	require.NoError(t, d.Unlock())
}

func TestADriverThatCannotLockKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	broken := &failing{err: errors.New("the connection is gone")}
	d := ours(t, dsn, func(c *migratelock.Config) {
		c.Open = func() (database.Driver, error) { return broken, nil }
	})
	require.ErrorIs(t, d.Lock(), broken.err)
	locked(t, pgtest.Connect(t, dsn), key, 0, 0)
}

// failing is a driver whose session has ended.
type failing struct {
	database.Driver
	err error
}

func (f *failing) Lock() error         { return f.err }
func (f *failing) Run(io.Reader) error { return f.err }
func (f *failing) Close() error        { return nil }
