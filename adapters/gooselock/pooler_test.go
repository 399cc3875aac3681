//go:build integration

package gooselock_test

import (
	"testing"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock/locktesting"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
)

func TestMigrationsGoThroughATransactionPoolerThatTheLockAvoids(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	pooled := service.PgBouncer(t, server, "pool_mode=transaction", "default_pool_size=3", "ignore_startup_parameters=extra_float_digits") +
		"&default_query_exec_mode=simple_protocol"
	_, err := advisory.Open(t.Context(), advisory.Config{DSN: pooled})
	require.ErrorIs(t, err, advisory.ErrPooler)
	locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
		t.Helper()
		return newProvider(t, openDB(t, pooled), migrations, goose.WithLocker(newLocker(t, open(t, server.DSN("postgres")), 0)))
	})
}
