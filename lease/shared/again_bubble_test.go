package shared_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

// keyed is a request for the only slot that can be sent again.
func keyed() shared.Request {
	r := ask("a", 1)
	r.IdempotencyKey = "k"
	return r
}

// stands lets another request wait at the gate until the test's end, and returns when it does.
func stands(t *testing.T, store lease.Store) {
	t.Helper()
	go func() { _, _ = locker(t, store).Acquire(t.Context(), ask("b", 1), -1) }()
	synctest.Wait()
	gate, err := store.Get(t.Context(), shared.SlotName("job", 0))
	require.NoError(t, err)
	require.Equal(t, "b", gate.Holder)
}

func TestARequestIsSentAgainWhileAnotherStandsAtTheGate(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, time.Minute, -1} {
		synctest.Test(t, func(t *testing.T) {
			store := leasetest.NewStore()
			first, err := locker(t, store).Acquire(t.Context(), keyed(), 0)
			require.NoError(t, err)
			stands(t, store)
			began := time.Now()
			again, err := locker(t, store).Acquire(t.Context(), keyed(), wait)
			require.NoError(t, err)
			assert.Equal(t, first.Claim, again.Claim)
			assert.Equal(t, first.Fence, again.Fence)
			assert.Less(t, time.Since(began), time.Second)
		})
	}
}

// The slot of a sending that lost the gate is not the request's: somebody else may have the whole lock.
func TestASlotThatWasTakenWithoutTheGateIsToldToNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		w := ask("writer", 0)
		w.Exclusive = true
		late := hooked{Store: store, beforeAcquire: func(r lease.AcquireRequest) {
			if slotOf(r.Name) == 0 {
				return
			}
			time.Sleep(shared.DefaultGateTTL) // and somebody else has the lock
			_, _ = locker(t, store).Acquire(t.Context(), w, 0)
		}}
		ctx := t.Context()
		_, err := locker(t, late).Acquire(ctx, keyed(), 0)
		require.Error(t, err)
		slot, err := store.Get(ctx, shared.SlotName("job", 1))
		require.NoError(t, err)
		require.Equal(t, "a", slot.Holder, "it has the slot, beside the writer")
		gate, err := store.Get(ctx, shared.SlotName("job", 0))
		require.NoError(t, err)
		require.Equal(t, "writer", gate.Holder)
		for _, wait := range []time.Duration{0, 10 * time.Second} {
			_, err = locker(t, store).Acquire(ctx, keyed(), wait)
			require.ErrorIs(t, err, lease.ErrHeld)
		}
	})
}

// A lease that ended between the look and the request is not got again beside the gate.
func TestANewLeaseOfASlotIsNotGotWithoutTheGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		first, err := locker(t, store).Acquire(t.Context(), keyed(), 0)
		require.NoError(t, err)
		w := ask("writer", 0) // it stands at the gate, to be alone
		w.Exclusive = true
		go func() { _, _ = locker(t, store).Acquire(t.Context(), w, -1) }()
		synctest.Wait()
		ends := hooked{Store: store, beforeAcquire: func(r lease.AcquireRequest) {
			if slotOf(r.Name) > 0 {
				assert.NoError(t, store.Release(t.Context(), first.Claim))
			}
		}}
		_, err = locker(t, ends).Acquire(t.Context(), keyed(), 0)
		require.ErrorIs(t, err, lease.ErrHeld)
	})
}
