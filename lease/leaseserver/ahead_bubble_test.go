package leaseserver

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A preparing store counts what becomes of the hand-overs that it prepares.
type preparing struct {
	*leasetest.Store
	fails                     atomic.Bool
	takes                     time.Duration
	prepared, carried, undone atomic.Int32
	acquires                  atomic.Int32
}

func (s *preparing) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	s.acquires.Add(1)
	return s.Store.Acquire(ctx, r)
}

func (s *preparing) PrepareHandOver(ctx context.Context, next lease.AcquireRequest) (
	handOver func(context.Context, lease.ReleaseRequest) (l lease.Lease, released, acquired error), cancel func(), err error,
) {
	s.prepared.Add(1)
	time.Sleep(s.takes)
	if s.fails.Load() {
		return nil, nil, errors.New("no")
	}
	handOver = func(ctx context.Context, r lease.ReleaseRequest) (l lease.Lease, released, acquired error) {
		s.carried.Add(1)
		return s.HandOver(ctx, r, next)
	}
	return handOver, func() { s.undone.Add(1) }, nil
}

// withHolder returns the queue of a server on a store, and the lease that "a" has there.
func withHolder(t *testing.T, store lease.Store) (*queue, lease.Lease) {
	t.Helper()
	s, err := New(Config{Store: store, Registry: prometheus.NewRegistry(), PollInterval: -1})
	require.NoError(t, err)
	l, _, err := s.queue.acquire(t.Context(), ask("a"), 0)
	require.NoError(t, err)
	return s.queue, l
}

// A got is a lease, and the time between the request and the moment from which the lease counts.
type got struct {
	lease.Lease
	waited time.Duration
}

// inLine makes a request wait, and returns when it does.
func inLine(ctx context.Context, t *testing.T, q *queue, r lease.AcquireRequest) <-chan got {
	t.Helper()
	answer := make(chan got, 1)
	go func() {
		l, waited, err := q.acquire(ctx, r, time.Hour)
		assert.NoError(t, err)
		answer <- got{l, waited}
	}()
	synctest.Wait()
	return answer
}

func TestAHandOverIsPreparedAndItsLeaseCountsFromThen(t *testing.T) {
	t.Parallel()
	const held = aheadAge / 2
	for name, c := range map[string]struct {
		store           *preparing
		held            time.Duration
		carried, undone int32
		waited          time.Duration // of the third, which came with the second, and whose hand-over was prepared when the second got the lock
	}{
		"prepared":                    {&preparing{}, held, 1, 0, 0},
		"in preparation":              {&preparing{takes: 2 * held}, held, 1, 0, 0},
		"not prepared":                {func() *preparing { s := new(preparing); s.fails.Store(true); return s }(), held, 0, 0, held},
		"prepared too long before":    {&preparing{}, 4 * held, 0, 1, 4 * held},
		"prepared at the last moment": {&preparing{}, aheadAge, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := c.store
				store.Store = leasetest.NewStore()
				q, first := withHolder(t, store)
				second, third := inLine(t.Context(), t, q, ask("b")), inLine(t.Context(), t, q, ask("c"))
				require.NoError(t, q.release(t.Context(), first.Claim))
				l := <-second
				synctest.Wait()
				require.EqualValues(t, 1, store.prepared.Load(), "only where the lock was just handed over")
				time.Sleep(c.held)
				require.NoError(t, q.release(t.Context(), l.Claim))
				l = <-third
				assert.Equal(t, "c", l.Holder)
				assert.Equal(t, c.waited, l.waited)
				assert.Equal(t, c.carried, store.carried.Load())
				synctest.Wait()
				assert.Equal(t, c.undone, store.undone.Load())
			})
		})
	}
}

// A waiter that leaves gives back what was prepared for it, and the next one prepares its own.
func TestAPreparationForAWaiterThatLeavesIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &preparing{Store: leasetest.NewStore()}
		q, first := withHolder(t, store)
		second := inLine(t.Context(), t, q, ask("b"))
		ctx, hangUp := context.WithCancel(t.Context())
		go func() { _, _, _ = q.acquire(ctx, ask("gone"), time.Hour) }()
		synctest.Wait()
		third := inLine(t.Context(), t, q, ask("c"))
		require.NoError(t, q.release(t.Context(), first.Claim))
		l := <-second
		synctest.Wait()
		hangUp()
		synctest.Wait()
		assert.EqualValues(t, 1, store.undone.Load())
		assert.EqualValues(t, 2, store.prepared.Load())
		require.NoError(t, q.release(t.Context(), l.Claim))
		assert.Equal(t, "c", (<-third).Holder)
		assert.EqualValues(t, 1, store.carried.Load())
	})
}

// A sending that came after the preparation does not know for how long the server was paused since. It
// asks the store, which knows how much is left.
func TestASendingAfterThePreparationAsksTheStoreForTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &preparing{Store: leasetest.NewStore()}
		q, first := withHolder(t, store)
		r := ask("c")
		r.IdempotencyKey = "k"
		second, third := inLine(t.Context(), t, q, ask("b")), inLine(t.Context(), t, q, r)
		require.NoError(t, q.release(t.Context(), first.Claim))
		l := <-second
		time.Sleep(aheadAge / 2)
		again := inLine(t.Context(), t, q, r)
		asked := store.acquires.Load()
		require.NoError(t, q.release(t.Context(), l.Claim))
		one, two := <-third, <-again
		assert.Equal(t, one.ID, two.ID)
		assert.Zero(t, one.waited)
		assert.Equal(t, asked+1, store.acquires.Load(), "the second sending asked")
	})
}
