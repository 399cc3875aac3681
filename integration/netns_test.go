//go:build integration

package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/netns"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
)

func TestABlackHoleEndsALockForEverAlsoAfterItHeals(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		n := netns.New(t)
		server, local := n.StartServer(t)
		holder := start(t, "hold briefly", server.DSN(""), "ip", "netns", "exec", n.Client)
		holder.Says("held")
		other := open(t, local, session.DefaultTTL)

		n.Forward(t, false)
		lock := acquire(t, other, agents.ID(1))
		assert.Contains(t, holder.Says("lost"), "no answer from the server")
		n.Forward(t, true)
		judge := pgtest.Connect(t, local)
		for range 10 { // a second
			holder.Says("not held")
			granted, _ := locks(t, judge)
			assert.Equal(t, 1, granted)
		}
		assert.NoError(t, lock.Context().Err())
		require.NoError(t, lock.Release())
		holder.Says("not held")
		granted, waiting := locks(t, judge)
		assert.Zero(t, granted+waiting)
	})
}
