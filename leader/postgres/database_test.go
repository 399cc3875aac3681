package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

func TestAnElectionNamesItsDatabaseWithoutItsPassword(t *testing.T) {
	t.Parallel()
	b, err := postgres.New(postgres.Config{DSN: "postgres://me:secret@db-1:6000,db-2:6001/shop", Key: namespace.Pair(1, 100)})
	require.NoError(t, err)
	e, err := leader.New(leader.Config{Name: "scheduler", Backend: b})
	require.NoError(t, err)
	require.Equal(t, "db-1:6000/shop", e.Database())

	e, err = leader.New(leader.Config{Name: "scheduler", Backend: leadertest.NewElection().Backend()})
	require.NoError(t, err)
	require.Empty(t, e.Database(), "control: a backend that is in no database")
}
