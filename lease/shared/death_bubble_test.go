package shared_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

var errDead = errors.New("the process is dead")

// A dying store is that of a process which is killed: before an operation, or when it was
// carried out and nobody has heard of it.
type dying struct {
	lease.Store

	left   int  // operations that are answered
	unsaid bool // the next one is carried out
}

func (d *dying) dies() (dead, carriesOut bool) {
	d.left--
	return d.left < 0, d.left == -1 && d.unsaid
}

func (d *dying) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	dead, carriesOut := d.dies()
	if !dead {
		return d.Store.Acquire(ctx, r)
	}
	if carriesOut {
		_, _ = d.Store.Acquire(ctx, r)
	}
	return lease.Lease{}, errDead
}

func (d *dying) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	dead, carriesOut := d.dies()
	if !dead {
		return d.Store.Renew(ctx, r)
	}
	if carriesOut {
		_, _ = d.Store.Renew(ctx, r)
	}
	return lease.Lease{}, errDead
}

func (d *dying) Release(ctx context.Context, c lease.Claim) error {
	dead, carriesOut := d.dies()
	if !dead {
		return d.Store.Release(ctx, c)
	}
	if carriesOut {
		_ = d.Store.Release(ctx, c)
	}
	return errDead
}

func (d *dying) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	if dead, _ := d.dies(); dead {
		return func(yield func(lease.Record, error) bool) { yield(lease.Record{}, errDead) }
	}
	return d.Store.List(ctx, r)
}

// A request dies after each of its operations, and is sent again through another server: it gets
// one share, and a writer comes after it.
func TestARequestThatDiesAnywhereIsSentAgainAndHasOneShare(t *testing.T) {
	t.Parallel()
	const operations = 6
	for _, exclusive := range []bool{false, true} {
		for left := range operations {
			for _, unsaid := range []bool{false, true} {
				t.Run(fmt.Sprintf("exclusive %v, %d operations, unsaid %v", exclusive, left, unsaid), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { dieAndGoOn(t, exclusive, left, unsaid) })
				})
			}
		}
	}
}

func dieAndGoOn(t *testing.T, exclusive bool, left int, unsaid bool) {
	t.Helper()
	store := leasetest.NewStore()
	r := ask("a", 2)
	r.IdempotencyKey, r.Exclusive = "k", exclusive
	if exclusive {
		r.Slots = 0
	}
	told, err := locker(t, &dying{Store: store, left: left, unsaid: unsaid}).Acquire(t.Context(), r, 0)
	if err != nil {
		require.ErrorIs(t, err, errDead)
	}
	began := time.Now()
	other := locker(t, store)
	share, err := other.Acquire(t.Context(), r, time.Minute)
	require.NoError(t, err)
	assert.LessOrEqual(t, time.Since(began), shared.DefaultGateTTL+shared.DefaultPollInterval)
	if told.ID != "" {
		assert.Equal(t, told.Claim, share.Claim)
	}
	holders, err := other.Holders(t.Context(), "job")
	require.NoError(t, err)
	require.Len(t, holders, 1, "nothing is left of the first sending beside it")
	assert.Equal(t, share.Claim, holders[0].Claim)

	w := ask("writer", 0)
	w.Exclusive = true
	_, err = other.Acquire(t.Context(), w, 0)
	require.ErrorIs(t, err, lease.ErrHeld)
	require.NoError(t, store.Release(t.Context(), share.Claim))
	_, err = other.Acquire(t.Context(), w, 0)
	require.NoError(t, err)
}

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
