package advisorytest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/namespace"
)

func TestATestSeesAndChangesWhatItsServerDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, key := advisorytest.NewServer(), namespace.Must(1, "agent").ID(1)
		start := time.Now()
		a, err := server.Open(advisory.Config{ApplicationName: "a", LocksPerConn: 10})
		require.NoError(t, err)
		defer a.Close()
		b, err := server.Open(advisory.Config{})
		require.NoError(t, err)
		defer b.Close()

		lock, err := a.With(advisory.Options{Shared: true}).Acquire(t.Context(), key)
		require.NoError(t, err)
		assert.Equal(t, []advisory.Holder{{PID: lock.PID(), ApplicationName: "a", State: "idle", Shared: true, SessionSince: start}}, server.Holders(key))
		assert.Equal(t, []namespace.Tag{key.Tag()}, server.Locked())
		waited := make(chan error)
		go func() {
			_, err := b.With(advisory.Options{Wait: time.Second}).Acquire(t.Context(), key)
			waited <- err
		}()
		synctest.Wait()
		assert.Equal(t, 1, server.Waiters(key))
		require.ErrorIs(t, <-waited, advisory.ErrTimeout)

		require.True(t, server.Kill(lock.PID()))
		<-lock.Lost()
		require.ErrorIs(t, lock.Release(), advisory.ErrLost)
		assert.False(t, server.Kill(lock.PID()))
		server.KillSessions()
		server.SetUnavailable(errors.New("on holiday"))
		_, err = a.Acquire(t.Context(), key)
		require.ErrorIs(t, err, advisory.ErrUnavailable)
		require.ErrorContains(t, err, "on holiday")
	})
}
