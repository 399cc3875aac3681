package migratelock_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	migratepq "github.com/golang-migrate/migrate/v4/database/postgres"
	databasetesting "github.com/golang-migrate/migrate/v4/database/testing"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pglatch/pglatch/adapters/migratelock"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/namespace/interop"
)

func TestGolangMigratesOwnSuitePasses(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]kind{"pgx/v5": withPgx, "postgres": withPq} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			d := ours(t, dsn, func(c *migratelock.Config) {
				c.Open = func() (database.Driver, error) { return k(dsn) }
			})
			databasetesting.Test(t, d, []byte("CREATE TABLE once ()"))
		})
	}
}

func TestOfManyReplicasThatMigrateAtOnceOneAppliesEachMigration(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	files := fstest.MapFS{
		"1_once.up.sql":  {Data: []byte("CREATE TABLE once ()")}, // fails the second time
		"2_index.up.sql": {Data: []byte("CREATE TABLE rows (id int)")},
		"3_index.up.sql": {Data: []byte("CREATE INDEX CONCURRENTLY built ON rows (id)")},
	}
	ended := make([]<-chan error, 5)
	for i := range ended {
		m := replica(t, ours(t, dsn, nil), files)
		ended[i] = up(m)
	}
	applied := 0
	for _, e := range ended {
		if err := <-e; !errors.Is(err, migrate.ErrNoChange) {
			require.NoError(t, err)
			applied++
		}
	}
	require.Equal(t, 1, applied)
	require.True(t, index(t, pgtest.Connect(t, dsn)))
}

func TestAnIndexIsBuiltConcurrentlyWhileOtherReplicasWait(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	openGate := gate(t, dsn)
	conn := pgtest.Connect(t, dsn)
	first, second := replica(t, ours(t, dsn, nil), gated), replica(t, ours(t, dsn, nil), gated)
	ended := up(first)
	atGate(t, conn)
	others := up(second)
	locked(t, conn, key, 1, 1)
	opened := make(chan error, 1)
	go func() { // a third one starts, which waits in New
		d, err := migratelock.New(context.WithoutCancel(t.Context()), migratelock.Config{
			Locker: open(t, dsn), Key: key, Timeout: time.Minute,
			Open: func() (database.Driver, error) { return withPgx(dsn) },
		})
		if err == nil {
			err = d.Close()
		}
		opened <- err
	}()
	await.Until(t, await.Patience, func() bool { // the third waits in line behind the second
		_, waiting, err := pgtest.CountLocks(t.Context(), conn)
		return assert.NoError(t, err) && waiting == 2
	})
	openGate()
	require.NoError(t, <-ended)
	require.ErrorIs(t, <-others, migrate.ErrNoChange)
	require.NoError(t, <-opened)
	require.True(t, index(t, conn))
}

// The control of the test above, with golang-migrate's own lock. The waiting replica has looked for deadlocks before there is
// one, as it does when it has waited for a second (deadlock_timeout); here it is told to look late.
func TestAnIndexThatIsBuiltConcurrentlyDeadlocksWithReplicasThatWaitInOneStatement(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	openGate := gate(t, dsn)
	conn := pgtest.Connect(t, dsn)
	first, second := replica(t, plain(t, dsn), gated), plain(t, dsn+"&options=-c%20deadlock_timeout%3D1h")
	ended := up(first)
	atGate(t, conn)
	others := make(chan error, 1)
	go func() { others <- second.Lock() }()
	locked(t, conn, theirs(t, conn), 1, 1)
	openGate()
	err := <-ended
	require.ErrorContains(t, err, "deadlock detected")
	require.ErrorContains(t, err, "40P01")
	require.NoError(t, <-others)
	require.False(t, index(t, conn), "an invalid index is left")
	_, dirty, err := second.Version()
	require.NoError(t, err)
	require.True(t, dirty, "and a dirty database")
}

func TestAReplicaThatGaveUpHasNoLockLater(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	files := fstest.MapFS{"1_once.up.sql": {Data: []byte("CREATE TABLE once ()")}}
	holder := ours(t, dsn, nil)
	late := replica(t, ours(t, dsn, func(c *migratelock.Config) { c.Unused = 50 * time.Millisecond }), files)
	late.LockTimeout = 50 * time.Millisecond
	third := replica(t, ours(t, dsn, nil), files)
	require.NoError(t, holder.Lock())
	require.ErrorIs(t, late.Up(), migrate.ErrLockTimeout)
	locked(t, conn, key, 1, 1) // its wait goes on
	require.NoError(t, holder.Unlock())
	require.NoError(t, third.Up())
	locked(t, conn, key, 0, 0)
	locked(t, conn, theirs(t, conn), 0, 0)
}

// The control of the test above, with golang-migrate's own lock.
func TestAReplicaThatGaveUpOnGolangMigratesOwnLockGetsItLater(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	holder, third := plain(t, dsn), plain(t, dsn)
	late := replica(t, plain(t, dsn), fstest.MapFS{"1_once.up.sql": {Data: []byte("CREATE TABLE once ()")}})
	late.LockTimeout = 50 * time.Millisecond
	require.NoError(t, holder.Lock())
	require.ErrorIs(t, late.Up(), migrate.ErrLockTimeout)
	locked(t, conn, theirs(t, conn), 1, 1)
	require.NoError(t, holder.Unlock())
	blocked := make(chan error, 1)
	go func() { blocked <- third.Lock() }()
	locked(t, conn, theirs(t, conn), 1, 1) // the third waits for one that has gone
	_, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	require.NoError(t, err)
	require.NoError(t, <-blocked)
}

func TestAWaitThatTimesOutSaysWhoHoldsTheLock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	holder := ours(t, dsn, func(c *migratelock.Config) { c.Unused = time.Hour })
	short := ours(t, dsn, func(c *migratelock.Config) { c.Timeout = 3 * time.Second })
	require.NoError(t, holder.Lock())
	for range 2 {
		var held *advisory.TimeoutError
		for tries := 0; tries < 5 && (held == nil || held.Holder == nil); tries++ { // a busy machine does not always say who
			err := short.Lock()
			require.ErrorIs(t, err, database.ErrLocked)
			require.ErrorAs(t, err, &held)
		}
		require.NotNil(t, held.Holder)
	}
	_, err := migratelock.New(t.Context(), migratelock.Config{
		Locker: open(t, dsn), Key: key, Timeout: 200 * time.Millisecond,
		Open: func() (database.Driver, error) { panic("is not made without the lock") },
	})
	require.ErrorIs(t, err, database.ErrLocked)
	require.NoError(t, holder.Unlock())
	require.ErrorIs(t, holder.Unlock(), database.ErrNotLocked)
	require.NoError(t, short.Lock())
	require.NoError(t, short.Unlock())
	locked(t, conn, key, 0, 0)
}

func TestALockThatWasGivenBackUnusedServesNoMigration(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	d := ours(t, dsn, func(c *migratelock.Config) { c.Unused = time.Millisecond })
	require.NoError(t, d.Lock())
	locked(t, conn, key, 0, 0)
	require.ErrorIs(t, d.SetVersion(1, true), migratelock.ErrUnused)
	require.ErrorIs(t, d.Run(strings.NewReader("CREATE TABLE once ()")), migratelock.ErrUnused)
	require.ErrorIs(t, d.Drop(), migratelock.ErrUnused)
	require.ErrorIs(t, d.Unlock(), database.ErrNotLocked)
	require.NoError(t, d.Run(strings.NewReader("CREATE TABLE once ()")), "after Unlock it is as ever")
}

func TestCloseEndsAWaitAndGivesTheLockBack(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	holder, waiter := ours(t, dsn, nil), ours(t, dsn, nil)
	require.NoError(t, holder.Lock())
	ended := make(chan error, 1)
	go func() { ended <- waiter.Lock() }()
	locked(t, conn, key, 1, 1)
	require.NoError(t, waiter.Close())
	require.ErrorIs(t, <-ended, context.Canceled)
	require.NoError(t, holder.Close())
	locked(t, conn, key, 0, 0)
	locked(t, conn, theirs(t, conn), 0, 0)
}

func TestLockLeavesTheSessionsLockTimeoutAsItWas(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	d := ours(t, dsn, func(c *migratelock.Config) {
		c.Open = func() (database.Driver, error) { return withPgx(dsn + "&options=-c%20lock_timeout%3D7s") }
	})
	m := replica(t, d, fstest.MapFS{"1_seen.up.sql": {Data: []byte("CREATE TABLE seen AS SELECT current_setting('lock_timeout') AS it")}})
	require.NoError(t, m.Up())
	var seen string
	require.NoError(t, pgtest.Connect(t, dsn).QueryRow(t.Context(), "SELECT it FROM seen").Scan(&seen))
	require.Equal(t, "7s", seen)
}

func TestABadConfigNamesItsField(t *testing.T) {
	t.Parallel()
	locks := open(t, pgtest.DSN(t))
	none := func() (database.Driver, error) { return nil, errors.New("not made") }
	for field, config := range map[string]migratelock.Config{
		"Locker":  {Key: key, Open: none},
		"Key":     {Locker: locks, Key: interop.GolangMigrate("shop", "public", "schema_migrations"), Open: none},
		"Open":    {Locker: locks, Key: key},
		"Timeout": {Locker: locks, Key: key, Open: none, Timeout: -1},
		"Unused":  {Locker: locks, Key: key, Open: none, Unused: -1},
	} {
		var bad *advisory.ConfigError
		_, err := migratelock.New(t.Context(), config)
		require.ErrorAs(t, err, &bad)
		require.Equal(t, field, bad.Field)
	}
	_, err := migratelock.New(t.Context(), migratelock.Config{Locker: locks, Key: key, Open: none})
	require.ErrorContains(t, err, "not made")
	_, err = (&migratelock.Driver{}).Open("postgres://")
	require.Error(t, err)
}

// golang-migrate leaves the reader of a migration that it read ahead and did not apply.
func TestMain(m *testing.M) {
	pgtest.Main(m, goleak.IgnoreAnyFunction("github.com/golang-migrate/migrate/v4.(*Migration).Buffer"))
}

var key = Migrations.ID(1)

// A kind is a driver of golang-migrate.
type kind func(dsn string) (database.Driver, error)

func withPgx(dsn string) (database.Driver, error) {
	db, err := sql.Open("pgx/v5", dsn)
	if err != nil {
		return nil, err
	}
	return migratepgx.WithInstance(db, &migratepgx.Config{})
}

func withPq(dsn string) (database.Driver, error) {
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return nil, err
	}
	return migratepq.WithInstance(db, &migratepq.Config{})
}

// open opens a Locker of a replica until the end of the test.
func open(t *testing.T, dsn string) *advisory.Locker {
	t.Helper()
	locks, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(locks.Close)
	return locks
}

// ours is a driver of a replica with this package.
func ours(t *testing.T, dsn string, change func(*migratelock.Config)) *migratelock.Driver {
	t.Helper()
	config := migratelock.Config{
		Locker: open(t, dsn), Key: key, Timeout: time.Minute, Unused: time.Minute,
		Open: func() (database.Driver, error) { return withPgx(dsn) },
	}
	if change != nil {
		change(&config)
	}
	d, err := migratelock.New(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// plain is a driver of a replica without it.
func plain(t *testing.T, dsn string) database.Driver {
	t.Helper()
	d, err := withPgx(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// replica is golang-migrate with a driver, which the test closes.
func replica(t *testing.T, d database.Driver, files fstest.MapFS) *migrate.Migrate {
	t.Helper()
	source, err := iofs.New(files, ".")
	require.NoError(t, err)
	t.Cleanup(func() { _ = source.Close() })
	m, err := migrate.NewWithInstance("iofs", source, "pgx5", d)
	require.NoError(t, err)
	m.LockTimeout = 2 * time.Minute
	return m
}

// theirs is the key that golang-migrate locks in a test's database.
func theirs(t *testing.T, conn *pgx.Conn) namespace.Key {
	t.Helper()
	return interop.GolangMigrate(conn.Config().Database, "public", "schema_migrations")
}

// locked waits until n sessions have the key, and w wait for it.
func locked(t *testing.T, conn *pgx.Conn, k namespace.Key, n, w int) {
	t.Helper()
	tag := k.Tag()
	await.Until(t, await.Patience, func() bool {
		var granted, waiting int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE granted), count(*) FILTER (WHERE NOT granted) FROM pg_locks
			WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND classid = $1 AND objid = $2 AND objsubid = $3`, tag.ClassID, tag.ObjID, tag.ObjSubID).Scan(&granted, &waiting)
		return assert.NoError(t, err) && granted == n && waiting == w
	})
}

// gated are migrations of which the first waits at a gate, and the second builds an index concurrently.
var gated = fstest.MapFS{
	"1_gate.up.sql":  {Data: []byte("SELECT FROM gate")},
	"2_index.up.sql": {Data: []byte("CREATE INDEX CONCURRENTLY built ON rows (id)")},
}

// gate makes the gate, closed, and the table of the index.
func gate(t *testing.T, dsn string) (openGate func()) {
	t.Helper()
	conn := pgtest.Connect(t, dsn)
	_, err := conn.Exec(t.Context(), "CREATE TABLE gate (); CREATE TABLE rows AS SELECT generate_series(1, 100) AS id")
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE gate")
	require.NoError(t, err)
	return func() { assert.NoError(t, tx.Commit(t.Context())) }
}

// atGate waits until a migration waits at the gate.
func atGate(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	await.Until(t, await.Patience, func() (there bool) {
		err := conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'gate'::regclass AND NOT granted)").Scan(&there)
		return assert.NoError(t, err) && there
	})
}

// up migrates, and tells how it ended.
func up(m *migrate.Migrate) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- m.Up() }()
	return ended
}

// index tells whether the index is there, and valid.
func index(t *testing.T, conn *pgx.Conn) (valid bool) {
	t.Helper()
	err := conn.QueryRow(t.Context(), "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('built')").Scan(&valid)
	require.NoError(t, err)
	return valid
}
