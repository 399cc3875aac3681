package advisorytest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/test/leak"
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

// Two processes share a server. The second one finds the agent locked, and the first one
// learns that its session ended.
func Example() {
	agents := namespace.Must(1, "agent")
	server := advisorytest.NewServer()
	open := func(name string) *advisory.Locker {
		locker, err := server.Open(advisory.Config{ApplicationName: name})
		if err != nil {
			panic(err)
		}
		return locker
	}
	first, second := open("first"), open("second")
	defer first.Close()
	defer second.Close()

	ctx := context.Background()
	err := first.Do(ctx, agents.ID(42), func(ctx context.Context) error {
		ran, err := second.DoOrSkip(ctx, agents.ID(42), func(context.Context) error { return nil })
		fmt.Println("second ran:", ran, err)

		holders := server.Holders(agents.ID(42))
		fmt.Println("held by:", holders[0].ApplicationName)

		server.KillSessions() // PostgreSQL restarts
		<-ctx.Done()
		return nil
	})
	fmt.Println("lost:", errors.Is(err, advisory.ErrLost))
	fmt.Println("still locked:", len(server.Locked()))
	// Output:
	// second ran: false <nil>
	// held by: first
	// lost: true
	// still locked: 0
}

func TestMain(m *testing.M) { leak.Main(m) }
