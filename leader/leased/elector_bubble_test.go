package leased_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leased"
)

func newElector(t *testing.T, store leased.Store, identity string) *leader.Elector {
	t.Helper()
	return newElectorWith(t, store, identity, leader.Callbacks{})
}

func newElectorWith(t *testing.T, store leased.Store, identity string, callbacks leader.Callbacks) *leader.Elector {
	t.Helper()
	e, err := leader.New(leader.Config{
		Name: name, Backend: newBackend(t, store), Identity: identity, MaxRenewFailures: 3, Callbacks: callbacks,
	})
	require.NoError(t, err)
	return e
}

// asSeenBy is a node's own way to the store, with faults of its own.
func asSeenBy(store *faulty) *faulty { return &faulty{Store: store.Store} }

func TestALeaderThatIsCutOffStopsBeforeItsLeaseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := newFaulty()
		way := asSeenBy(shared)
		first, second := newElector(t, way, "first"), newElector(t, shared, "second")
		require.NoError(t, first.Start(t.Context()))
		require.NoError(t, first.WaitForLeadership(t.Context()))
		require.NoError(t, second.Start(t.Context()))
		time.Sleep(time.Minute)
		require.True(t, first.IsLeader(), "the control: renewals keep it")
		holder, ok, err := second.Leader(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "first", holder.Identity)

		term := first.Context()
		way.set(func(f *faulty) { f.cut = true })
		<-term.Done()
		end := record(t, shared).ExpiresAt
		assert.GreaterOrEqual(t, time.Until(end), driver.DefaultLeaseDuration/10, "a margin is left")
		assert.ErrorIs(t, context.Cause(term), leader.ErrLost)
		require.NoError(t, second.WaitForLeadership(t.Context()))
		assert.GreaterOrEqual(t, time.Since(end), time.Duration(0))
		assert.Less(t, time.Since(end), time.Second)
		assert.True(t, second.Term().Follows(leader.TermOfContext(term)))

		way.set(func(f *faulty) { f.cut = false })
		time.Sleep(time.Minute)
		assert.True(t, second.IsLeader())
		assert.False(t, first.IsLeader())
		require.NoError(t, second.Shutdown(context.Background()))
		require.NoError(t, first.WaitForLeadership(t.Context()))
		require.NoError(t, first.Shutdown(context.Background()))
	})
}

func TestAStopInTheMiddleOfAnAttemptLeavesNothingHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := newFaulty()
		way := asSeenBy(shared)
		way.set(func(f *faulty) { f.hang = true })
		e := newElector(t, way, "first")
		require.NoError(t, e.Start(t.Context()))
		synctest.Wait()
		require.Equal(t, "first", record(t, shared).Holder, "its attempt has got the lease")
		way.set(func(f *faulty) { f.hang = false })
		require.NoError(t, e.Shutdown(context.Background()))
		lead(t, newBackend(t, shared), "second")
	})
}
