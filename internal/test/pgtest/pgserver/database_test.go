package pgserver_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

func TestADatabaseIsCreatedWithEitherFormOfConnectionString(t *testing.T) {
	t.Parallel()
	s := pgtest.StartServer(t, pgserver.Options{})
	config, err := pgx.ParseConfig(s.DSN(""))
	require.NoError(t, err)
	for _, admin := range []string{
		s.DSN(""),
		s.DSN("") + "&dbname=template1",
		"host=" + s.SocketDir() + " port=" + query(t, s.DSN(""), "SHOW port") + " user=" + config.User + " dbname=postgres",
	} {
		dsn, err := pgserver.CreateDatabase(t.Context(), admin)
		require.NoError(t, err)
		name := query(t, dsn, "SELECT current_database()::text")
		assert.Regexp(t, "^pglatch_test_", name)

		left, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		require.NoError(t, pgserver.DropDatabase(t.Context(), admin, dsn), "although a client is connected")
		require.Error(t, left.Ping(t.Context()))
		assert.Empty(t, query(t, s.DSN(""), "SELECT datname::text FROM pg_database WHERE datname = '"+name+"'"))
		require.NoError(t, pgserver.DropDatabase(t.Context(), admin, dsn), "a test may drop its database itself")
	}
}

func TestOnlyDatabasesOfTestsAreDropped(t *testing.T) {
	t.Parallel()
	s := pgtest.StartServer(t, pgserver.Options{})
	query(t, s.DSN(""), "CREATE DATABASE precious")
	require.ErrorContains(t, pgserver.DropDatabase(t.Context(), s.DSN(""), s.DSN("precious")), "it is not dropped")
	require.NoError(t, ping(t.Context(), s.DSN("precious")))
}
