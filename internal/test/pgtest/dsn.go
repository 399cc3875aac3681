package pgtest

import (
	"context"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// databases counts the calls of DSN in this test binary.
var databases atomic.Int64

// timeout bounds one step of preparation on a slow and busy machine, including a download.
const timeout = 5 * time.Minute

// shortDatabases is how many databases a package gets in the short form of the tests: the tests with
// PostgreSQL then take a time that does not grow with their number.
const shortDatabases = 10

// DSN is the URL of an empty database that only this test uses. It is dropped at the end of the test, even
// with open connections. Without a PostgreSQL the test fails. In the short form of the tests, go test -short,
// the first ten calls of a package get one, and tests with later calls are skipped.
func DSN(tb testing.TB) string {
	tb.Helper()
	if databases.Add(1) > shortDatabases {
		Long(tb)
	}
	dsn, err := Open(tb)
	require.NoError(tb, err)
	return dsn
}

// Open is DSN for a program that continues without a PostgreSQL. Such a program calls Close at its end.
func Open(tb testing.TB) (dsn string, err error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	defer cancel()
	admin, err := shared.open(ctx)
	if err != nil {
		return "", err
	}
	dsn, err = pgserver.CreateDatabase(ctx, admin)
	if err != nil {
		return "", err
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		assert.NoError(tb, pgserver.DropDatabase(ctx, admin, dsn))
	})
	return dsn, nil
}

// Close removes the server that Open started, if it started one. Main calls it in a test binary.
func Close() error { return shared.close() }

// As returns the connection string for a role without a password.
func As(tb testing.TB, dsn, role string) string {
	tb.Helper()
	u, err := url.Parse(dsn)
	require.NoError(tb, err)
	u.User = url.User(role)
	return u.String()
}

// Connect opens a connection that is closed at the end of the test.
func Connect(tb testing.TB, dsn string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), dsn)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Long skips a test in the short form of the tests, go test -short.
func Long(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("not in the short form of the tests")
	}
}

// StartServer starts a server that only this test uses, and closes it at the end of the test.
// It does so even when the environment names a server. Such a test is [Long].
func StartServer(tb testing.TB, options pgserver.Options) *pgserver.Server {
	tb.Helper()
	Long(tb)
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	defer cancel()
	server, err := pgserver.Start(ctx, options)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			tb.Error(err)
		}
	})
	return server
}
