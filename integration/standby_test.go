//go:build integration

package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/pgtest"
	"github.com/pglatch/pglatch/internal/pgtest/pgserver"
)

func TestAStandbyIsRefusedUntilItsPromotion(t *testing.T) {
	t.Parallel()
	primary := pgtest.StartServer(t, pgserver.Options{})
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, standby.Close()) })
	_, err = advisory.Open(t.Context(), advisory.Config{DSN: standby.DSN("")})
	require.ErrorIs(t, err, advisory.ErrStandby)

	// The control: the standby grants what the primary has granted.
	on := func(s *pgserver.Server) (held bool) {
		require.NoError(t, connect(t, s.DSN("")).QueryRow(t.Context(), "SELECT pg_try_advisory_lock(7)").Scan(&held))
		return held
	}
	assert.True(t, on(primary))
	assert.True(t, on(standby))

	both := fmt.Sprintf("host=%s,%s port=%d,%d user=postgres dbname=postgres sslmode=disable",
		standby.Host(), primary.Host(), standby.Port(), primary.Port())
	l := open(t, both, advisory.DefaultSessionTTL)
	lock := acquire(t, l, agents.ID(1))
	_, err = open(t, primary.DSN(""), advisory.DefaultSessionTTL).TryAcquire(t.Context(), agents.ID(1))
	require.ErrorIs(t, err, advisory.ErrHeld, "the lock is on the primary")

	require.NoError(t, primary.Stop(t.Context(), pgserver.Fast))
	requireLost(t, lock, patience)
	_, err = connect(t, standby.DSN("")).Exec(t.Context(), "SELECT pg_promote()")
	require.NoError(t, err)
	require.NoError(t, acquire(t, open(t, standby.DSN(""), advisory.DefaultSessionTTL), agents.ID(1)).Release())
	require.NoError(t, acquire(t, l, agents.ID(1)).Release(), "the old Locker finds the new primary")
}

func TestAUnixSocketWorks(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	l := open(t, fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres", server.SocketDir(), server.Port()), time.Second)
	lock := acquire(t, l, agents.ID(1))
	var held *advisory.HeldError
	_, err := open(t, server.DSN(""), time.Second).TryAcquire(t.Context(), agents.ID(1))
	require.ErrorAs(t, err, &held)
	assert.Empty(t, held.Holder.ClientAddr)
	require.Eventually(t, func() bool { return l.Stats().Pings > 5 }, patience, 10*time.Millisecond)
	require.NoError(t, lock.Release())
}
