//go:build integration

package environment

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

func TestShardsRefuseAPoolerThatSharesSessions(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	open := func(mode string) (driver.Session, error) {
		b, err := postgres.New(postgres.Config{DSN: service.PgBouncer(t, server, "pool_mode="+mode), Namespace: namespace.Must(7, "tenant"), CreateTable: true})
		require.NoError(t, err)
		return b.Open(t.Context(), driver.Member{Identity: "a", Weight: 100}, time.Minute)
	}
	for _, mode := range []string{"transaction", "statement"} {
		_, err := open(mode)
		require.ErrorIs(t, err, postgres.ErrPooler, mode)
		require.ErrorIs(t, err, leader.ErrPermanent)
		require.ErrorContains(t, err, "pool_mode=session")
	}
	s, err := open("session") // the control
	require.NoError(t, err)
	grants, err := s.Claim(t.Context(), []string{"1"})
	require.NoError(t, err)
	require.Len(t, grants, 1)
	require.NoError(t, s.Leave(t.Context()))
	require.NoError(t, s.Close())
}
