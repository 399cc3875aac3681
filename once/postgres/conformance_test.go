package postgres_test

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/oncetest"
)

func TestPostgresConformsToTheContract(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "simple_protocol", "cache_statement"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			if mode != "exec" {
				pgtest.Long(t)
			}
			oncetest.Run(t, oncetest.Harness{New: func(t *testing.T) once.Store {
				t.Helper()
				return newStore(t, pgtest.DSN(t)+"&default_query_exec_mode="+mode)
			}})
		})
	}
}

// A role or a database may have another isolation level by default, and a session the strangest settings.
func TestPostgresConformsWhateverTheDefaultsAre(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	oncetest.Run(t, oncetest.Harness{New: func(t *testing.T) once.Store {
		t.Helper()
		return newStore(t, pgtest.DSN(t)+"&options=-c%20default_transaction_isolation%3Dserializable%20-c%20synchronous_commit%3Doff"+
			"%20-c%20timezone%3DAsia/Kathmandu%20-c%20datestyle%3DSQL,DMY%20-c%20intervalstyle%3Dsql_standard")
	}})
}
