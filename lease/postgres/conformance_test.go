package postgres_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/postgres"
)

func TestPostgresConformsToTheContract(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			if mode != "exec" {
				pgtest.Long(t)
			}
			var databases sync.Map // of the stores
			openOn := func(t *testing.T, dsn string) lease.Store {
				t.Helper()
				s := newStore(t, dsn+"&default_query_exec_mode="+mode)
				databases.Store(lease.Store(s), dsn)
				return s
			}
			leasetest.Run(t, leasetest.Harness{
				New: func(t *testing.T) lease.Store {
					t.Helper()
					return openOn(t, pgtest.DSN(t))
				},
				Reopen: func(t *testing.T, store lease.Store) lease.Store {
					t.Helper()
					dsn, ok := databases.Load(store)
					require.True(t, ok)
					newJudge(t, dsn.(string)).exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
					store.(*postgres.Store).Close()
					return openOn(t, dsn.(string))
				},
			})
		})
	}
}
