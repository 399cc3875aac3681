package migratelock_test

import (
	"database/sql"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	migratepq "github.com/golang-migrate/migrate/v4/database/postgres"
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
