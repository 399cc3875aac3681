package sqlite_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/sqlite"
)

func TestAStoreWhoseTablesAreGoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"leases", "state"} {
		path := filled(t)
		run(t, other(t, path), "DROP TABLE "+table)
		refused(t, path, sqlite.ErrCorrupt)
	}
}

func TestTablesThatGoAwayAtWorkStopTheStoreAndNotTheProgram(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"leases", "state"} {
		path := filled(t)
		s := open(t, path, sqlite.Config{})
		require.NoError(t, s.Health(t.Context()))
		run(t, other(t, path), "DROP TABLE "+table)
		for range 3 {
			_, err := s.Acquire(t.Context(), request("new"))
			require.ErrorIs(t, err, sqlite.ErrCorrupt)
			require.ErrorIs(t, err, lease.ErrBroken)
			_, err = s.Get(t.Context(), "job/1")
			require.ErrorIs(t, err, sqlite.ErrCorrupt)
			require.ErrorIs(t, s.Health(t.Context()), lease.ErrBroken)
		}
	}
}
