package pgtest_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

func TestMain(m *testing.M) {
	if os.Getenv("PGLATCH_PGTEST_LEAK") == "1" {
		go func() { select {} }()
	}
	pgtest.Main(m)
}

func TestDSNIsAnEmptyDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	first, second := pgtest.DSN(t), pgtest.DSN(t)
	assert.NotEqual(t, first, second)
	for _, dsn := range []string{first, second} {
		execute(t, dsn, "CREATE TABLE mine (id int)")
	}
}

func TestTheDatabaseIsDroppedAtTheEndOfTheTestWithItsClients(t *testing.T) {
	t.Parallel()
	watcher := pgtest.Connect(t, pgtest.DSN(t))
	var dsn string
	var left *pgx.Conn
	t.Run("a test", func(t *testing.T) {
		dsn = pgtest.DSN(t)
		var err error
		left, err = pgx.Connect(context.Background(), dsn) // the connection outlives this test
		require.NoError(t, err)
		assert.Equal(t, 1, databases(t, watcher, dsn))
	})
	assert.Zero(t, databases(t, watcher, dsn))
	require.Error(t, left.Ping(t.Context()), "its client was disconnected")
}

func TestDSNUsesTheServerOfTheEnvironmentAndTouchesNothingElse(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	execute(t, server.DSN(""), "CREATE DATABASE mine")
	for _, variable := range []string{"PGLATCH_TEST_DATABASE_URL", "TEST_DATABASE_URL"} {
		// No programs are needed then.
		code, out := child(t, "^TestDSNIsAnEmptyDatabaseOfItsOwn$", variable+"="+server.DSN("mine"), "PGBIN=/nonexistent")
		require.Zero(t, code, out)
	}
	log, err := server.LogSince(0)
	require.NoError(t, err)
	assert.NotContains(t, log, "ERROR")
	conn := pgtest.Connect(t, server.DSN(""))
	var names []string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT array_agg(datname::text ORDER BY datname) FROM pg_database").Scan(&names))
	assert.Equal(t, []string{"mine", "postgres", "template0", "template1"}, names)
}

func TestAServerOfAnotherVersionInTheEnvironmentIsRefused(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	other := "14"
	if server.Installation().Major == 14 {
		other = "15"
	}
	code, out := child(t, "^TestDSNIsAnEmptyDatabaseOfItsOwn$", "PGLATCH_TEST_DATABASE_URL="+server.DSN(""), "PGLATCH_PG_VERSION="+other)
	require.NotZero(t, code)
	assert.Contains(t, out, "wanted is "+other)
}

func TestWithoutPostgreSQLTheTestsFailAndSayHowToGetOne(t *testing.T) {
	t.Parallel()
	code, out := child(t, "^TestDSNIsAnEmptyDatabaseOfItsOwn$", "PGLATCH_TEST_DATABASE_URL=", "TEST_DATABASE_URL=",
		"PGLATCH_PG_VERSION=", "PGBIN=/nonexistent")
	require.NotZero(t, code)
	assert.Contains(t, out, "--- FAIL: TestDSNIsAnEmptyDatabaseOfItsOwn")
	assert.Contains(t, out, "point it at the directory of postgres and initdb, or unset it")
	assert.NotContains(t, out, "SKIP")
}

func TestAGoroutineThatRemainsFailsThePackage(t *testing.T) {
	t.Parallel()
	code, out := child(t, "^$", "PGLATCH_PGTEST_LEAK=1")
	require.NotZero(t, code)
	assert.Contains(t, out, "goroutines remain 15s after the tests")
	code, out = child(t, "^$")
	require.Zero(t, code, out)
}

// child runs tests of this binary in another process.
func child(t *testing.T, tests string, env ...string) (code int, out string) {
	t.Helper()
	p := proctest.Tests(t, tests, env...)
	code = p.Wait()
	return code, p.Stdout.String() + p.Stderr.String()
}

func databases(t *testing.T, conn *pgx.Conn, dsn string) (n int) {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname = $1", config.Database).Scan(&n))
	return n
}

func execute(t *testing.T, dsn, sql string) {
	t.Helper()
	_, err := pgtest.Connect(t, dsn).Exec(t.Context(), sql)
	require.NoError(t, err)
}
