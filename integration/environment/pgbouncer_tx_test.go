//go:build integration

package environment

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
)

func TestATransactionLockWorksBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{})
		locker := open(t, advisory.Config{DSN: server.DSN("")})
		direct := pgtest.Connect(t, server.DSN(""))
		for _, settings := range [][]string{
			{"pool_mode=transaction"},
			{"pool_mode=transaction", "default_pool_size=1"},
			{"pool_mode=transaction", "server_reset_query_always=1"},
		} {
			config, err := pgx.ParseConfig(service.PgBouncer(t, server, settings...))
			require.NoError(t, err)
			config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // a pooler of this age knows no prepared statements
			conn, err := pgx.ConnectConfig(t.Context(), config)
			require.NoError(t, err)
			defer conn.Close(context.WithoutCancel(t.Context()))

			require.ErrorIs(t, advisory.LockTx(t.Context(), conn, advisory.TxOptions{}, agents.ID(1)), advisory.ErrNoTransaction)
			requireLocks(t, direct, 0, 0)
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, agents.ID(1)))
			_, err = locker.TryAcquire(t.Context(), agents.ID(1))
			require.ErrorIs(t, err, advisory.ErrHeld)
			require.NoError(t, tx.Commit(t.Context()))
			requireLocks(t, direct, 0, 0)
			require.ErrorIs(t, advisory.LockTx(t.Context(), conn, advisory.TxOptions{}, agents.ID(1)), advisory.ErrNoTransaction)
		}
	})
}
