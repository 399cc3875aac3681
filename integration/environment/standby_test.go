//go:build integration

package environment

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// startStandby starts a primary and a standby of it.
func startStandby(t *testing.T) (primary, standby *pgserver.Server) {
	t.Helper()
	primary = pgtest.StartServer(t, pgserver.Options{})
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Close()) })
	return primary, standby
}

func TestOpenRefusesAStandbyUntilItIsPromoted(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		_, standby := startStandby(t)
		locker, err := advisory.Open(t.Context(), lockmode.Of(t).Config(advisory.Config{DSN: standby.DSN("")}))
		require.Nil(t, locker)
		require.ErrorIs(t, err, advisory.ErrStandby)
		require.NotErrorIs(t, err, advisory.ErrUnavailable)
		require.ErrorContains(t, err, "lock space of its own")
		require.ErrorContains(t, err, "connect to the primary")

		direct := pgtest.Connect(t, standby.DSN(""))
		var promoted bool
		require.NoError(t, direct.QueryRow(t.Context(), "SELECT pg_promote()").Scan(&promoted))
		require.True(t, promoted)
		requireEverythingWorks(t, standby.DSN(""), direct)
	})
}

func TestAListOfHostsLeadsToThePrimary(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		primary, standby := startStandby(t)
		dsn := fmt.Sprintf("postgres://postgres@%s:%d,%s:%d/postgres?sslmode=disable",
			standby.Host(), standby.Port(), primary.Host(), primary.Port())
		requireEverythingWorks(t, dsn, pgtest.Connect(t, primary.DSN("")))
	})
}

// The control: what Open keeps from happening.
func TestAPrimaryAndItsStandbyGrantOneLockEach(t *testing.T) {
	t.Parallel()
	primary, standby := startStandby(t)
	require.True(t, tryLock(t, pgtest.Connect(t, primary.DSN(""))))
	require.True(t, tryLock(t, pgtest.Connect(t, standby.DSN(""))))
	require.False(t, tryLock(t, pgtest.Connect(t, primary.DSN(""))))
}
