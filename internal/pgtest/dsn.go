package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pgtest/pgserver"
)

// timeout bounds one step of preparation on a slow and busy machine, including a download.
const timeout = 5 * time.Minute

// DSN is the URL of an empty database that only this test uses. It is dropped at the end of the test, with
// whatever connections are left. Without a PostgreSQL the test fails.
func DSN(tb testing.TB) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	defer cancel()
	admin, err := shared.open(ctx)
	require.NoError(tb, err)
	dsn, err := pgserver.CreateDatabase(ctx, admin)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := pgserver.DropDatabase(ctx, admin, dsn); err != nil {
			tb.Error(err)
		}
	})
	return dsn
}

// StartServer starts a server that only this test uses, and closes it at the end of the test.
// It does so even when the environment names a server.
func StartServer(tb testing.TB, options pgserver.Options) *pgserver.Server {
	tb.Helper()
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
