package postgres_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/oncetest"
	"github.com/pglatch/pglatch/once/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// newStore returns a store on the database, with its table.
func newStore(tb testing.TB, dsn string) *postgres.Store {
	tb.Helper()
	s, err := postgres.New(postgres.Config{DSN: dsn, CreateTable: true})
	require.NoError(tb, err)
	tb.Cleanup(s.Close)
	require.NoError(tb, s.Migrate(tb.Context()))
	return s
}

func newRunner(tb testing.TB, c once.Config) *once.Runner {
	tb.Helper()
	r, err := once.New(c)
	require.NoError(tb, err)
	return r
}

// thisMinute is a tick.
func thisMinute() time.Time { return once.Normal(time.Now().Truncate(time.Minute)) }

// conforms runs the suite in one database, in which each store has a table.
func conforms(t *testing.T, parameters string) {
	t.Helper()
	pool := dbtest.Pool(t, pgtest.DSN(t)+"&pool_max_conns=10&"+parameters)
	var tables atomic.Int32
	oncetest.Run(t, oncetest.Harness{New: func(t *testing.T) once.Store {
		t.Helper()
		s, err := postgres.New(postgres.Config{Pool: pool, Table: fmt.Sprintf("ticks%d", tables.Add(1)), CreateTable: true})
		require.NoError(t, err)
		require.NoError(t, s.Migrate(t.Context()))
		return s
	}})
}

func TestPostgresConformsToTheContract(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "simple_protocol", "cache_statement"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			if mode != "exec" {
				pgtest.Long(t)
			}
			conforms(t, "default_query_exec_mode="+mode)
		})
	}
}

// A role or a database may have another isolation level by default, and a session the strangest settings.
func TestPostgresConformsWhateverTheDefaultsAre(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	conforms(t, "default_query_exec_mode=exec&options=-c%20default_transaction_isolation%3Dserializable%20-c%20synchronous_commit%3Doff"+
		"%20-c%20timezone%3DAsia/Kathmandu%20-c%20datestyle%3DSQL,DMY%20-c%20intervalstyle%3Dsql_standard")
}
