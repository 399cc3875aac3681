//go:build integration

package environment

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/oncetest"
	"github.com/pglatch/pglatch/once/postgres"
)

var onceTables atomic.Int64

// onceStore is a store on an empty table.
func onceStore(t *testing.T, dsn string) once.Store {
	t.Helper()
	store, err := postgres.New(postgres.Config{DSN: dsn, CreateTable: true, Table: fmt.Sprintf("once_%d", onceTables.Add(1))})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

func TestTicksAreClaimedBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	for _, settings := range [][]string{
		{"pool_mode=transaction", "default_pool_size=4"},
		{"pool_mode=transaction", "server_reset_query_always=1"},
	} {
		dsn := service.PgBouncer(t, server, settings...)
		t.Run(settings[1], func(t *testing.T) {
			oncetest.Run(t, oncetest.Harness{New: func(t *testing.T) once.Store { t.Helper(); return onceStore(t, dsn) }})
		})
	}
}

func TestATickRunsInATransactionBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	dsn := service.PgBouncer(t, server, "pool_mode=transaction")
	pool := dbtest.Pool(t, dsn+"&default_query_exec_mode=exec")
	_, err := pool.Exec(t.Context(), postgres.Schema(""), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	did, tick := 0, time.Now().Truncate(time.Minute)
	for range 3 {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := postgres.DoTx(t.Context(), tx, "report", tick, func(context.Context) error { did++; return nil })
			return err
		}))
	}
	require.Equal(t, 1, did)
	_, err = postgres.DoTx(t.Context(), pool, "report", time.Now(), func(context.Context) error { did++; return nil })
	require.ErrorIs(t, err, postgres.ErrNoTransaction)
}
