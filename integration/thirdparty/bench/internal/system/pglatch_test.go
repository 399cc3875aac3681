package system_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// open opens a mode of pglatch.
func open(t *testing.T, name string, env system.Env) system.Client {
	t.Helper()
	all := system.All()
	s := all[slices.IndexFunc(all, func(s system.System) bool { return s.Name == name })]
	env.Addresses = map[system.Server]string{system.Postgres: pgtest.DSN(t)}
	env.Tag, env.Conns = "bench-test", 4
	client, err := s.Open(t.Context(), env)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

func TestTheGuardsOfPglatchAreProvenOrTheirAbsenceIsFound(t *testing.T) {
	t.Parallel()
	for _, name := range []string{system.Dedicated, system.Multiplexed1} {
		on := open(t, name, system.Env{Sentinel: true})
		require.NoError(t, on.Cycle(t.Context(), 0, 1, func() {}))
		guarded, ok := on.(system.Guarded)
		require.True(t, ok)
		require.NoError(t, guarded.Guards(t.Context()), name)
		cost, err := on.Footprint(t.Context())
		require.NoError(t, err)
		assert.Len(t, cost.PIDs, cost.Connections, name)
		assert.Positive(t, cost.Connections, name)

		off := open(t, name, system.Env{}) // holds no lock, so that it sends no pings
		require.NoError(t, off.Cycle(t.Context(), 0, 1, func() {}))
		guarded, ok = off.(system.Guarded)
		require.True(t, ok)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorContains(t, guarded.Guards(over), "the guards are off", name)
	}
}

func TestLossesAreFollowedToEachHolder(t *testing.T) {
	t.Parallel()
	for name, locks := range map[string]int{system.Dedicated: 3, system.Multiplexed2: 100} {
		guarded, ok := open(t, name, system.Env{Locks: 200}).(system.Guarded)
		require.True(t, ok)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		times, err := guarded.Lose(ctx, locks)
		require.NoError(t, err, name)
		assert.Equal(t, uint64(locks), times.Count(), name)
		require.ErrorContains(t, guarded.Guards(ctx), "locks were lost", "a loss in a measurement is found")
	}
}
