package leaseserver

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

// A lateStore takes some time for a hand-over.
type lateStore struct {
	*leasetest.Store
	late time.Duration
}

func (s lateStore) HandOver(ctx context.Context, r lease.ReleaseRequest, next lease.AcquireRequest) (l lease.Lease, released, acquired error) {
	bubble.Sleep(s.late)
	return s.Store.HandOver(ctx, r, next)
}

func TestAWaitThatEndsDuringAHandOverGetsTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const wait = 500 * time.Millisecond
		q, held := withHolder(t, lateStore{leasetest.NewStore(), 2 * wait})
		next := make(chan lease.Lease)
		go func() {
			l, _, err := q.acquire(t.Context(), ask("b"), wait)
			assert.NoError(t, err)
			next <- l
		}()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, q.release(t.Context(), held.Claim))
		assert.Equal(t, "b", (<-next).Holder)
		assert.Equal(t, 2*wait, time.Since(began), "the wait was over by then")
	})
}

func ask(holder string) lease.AcquireRequest {
	return lease.AcquireRequest{Name: "job", Holder: holder, TTL: 10 * time.Hour}
}

// A preparing store counts how the hand-overs that it prepares end.
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
	bubble.Sleep(s.takes)
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
				bubble.Sleep(c.held)
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
		bubble.Sleep(aheadAge / 2)
		again := inLine(t.Context(), t, q, r)
		asked := store.acquires.Load()
		require.NoError(t, q.release(t.Context(), l.Claim))
		one, two := <-third, <-again
		assert.Equal(t, one.ID, two.ID)
		assert.Zero(t, one.waited)
		assert.Equal(t, asked+1, store.acquires.Load(), "the second sending asked")
	})
}

// Another server got the lease for one of so many requests of its holder that not all of them ask for it.
func TestAWaitThatEndsWhileAnotherSendingHasTheLeaseGetsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		q, held := withHolder(t, store)
		ctx, hangUp := context.WithCancel(t.Context())
		defer hangUp()
		r := ask("b")
		for i := range mostLooks {
			r.IdempotencyKey = strconv.Itoa(i)
			go func() { _, _, _ = q.acquire(ctx, r, time.Hour) }()
			synctest.Wait()
		}
		r.IdempotencyKey = "k"
		answer := make(chan lease.Lease)
		go func() {
			l, _, err := q.acquire(t.Context(), r, time.Minute)
			assert.NoError(t, err)
			answer <- l
		}()
		synctest.Wait()
		require.NoError(t, store.Release(t.Context(), held.Claim))
		got, err := store.Acquire(t.Context(), r)
		require.NoError(t, err)
		q.wake("job")
		assert.Equal(t, got.Claim, (<-answer).Claim)
	})
}

func TestTheReleaseOfASlotWakesWhoWaitsForAnyOfTheLock(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Store: leasetest.NewStore(), Registry: prometheus.NewRegistry(), PollInterval: -1})
	require.NoError(t, err)
	r := shared.Request{AcquireRequest: lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Hour}, Slots: 2}
	_, err = s.shares.Acquire(t.Context(), r, 0)
	require.NoError(t, err)
	second, err := s.shares.Acquire(t.Context(), r, 0)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	await, stop, err := shareStore{s.queue}.Watch(ctx, "job")
	require.NoError(t, err)
	assert.Equal(t, 1, s.queue.length())
	require.NoError(t, s.queue.release(t.Context(), second.Claim))
	require.NoError(t, await(time.Hour))
	cancel()
	require.ErrorIs(t, await(time.Hour), context.Canceled)
	stop()
	assert.Zero(t, s.queue.length())
	assert.Empty(t, s.queue.locks)
}

func TestWhoWaitsForASlotHearsThatTheServerShutsDown(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Store: leasetest.NewStore(), Registry: prometheus.NewRegistry()})
	require.NoError(t, err)
	await, stop, err := shareStore{s.queue}.Watch(t.Context(), "job")
	require.NoError(t, err)
	defer stop()
	require.NoError(t, s.Shutdown(t.Context()))
	require.ErrorIs(t, await(time.Hour), lease.ErrBusy)
}

func TestWithTooManyWaitersNobodyWaitsForASlot(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Store: leasetest.NewStore(), Registry: prometheus.NewRegistry(), MaxWaiters: 1})
	require.NoError(t, err)
	_, stop, err := shareStore{s.queue}.Watch(t.Context(), "other")
	require.NoError(t, err)
	defer stop()
	_, _, err = shareStore{s.queue}.Watch(t.Context(), "job")
	require.ErrorIs(t, err, lease.ErrBusy)
}

// The lease was got for another sending of the request, and the server's machine was
// suspended before this one came: the store's clock ran on.
func TestALeaseThatWasGotBeforeASuspensionIsShorterByIt(t *testing.T) {
	t.Parallel()
	asked := boottime.Present()
	start := asked.Add(time.Second)
	for name, c := range map[string]struct{ suspended, remaining time.Duration }{
		"control":   {0, 59 * time.Minute},
		"suspended": {30 * time.Minute, 29 * time.Minute},
		"too long":  {time.Hour, 0},
	} {
		asked.Boot = start.Boot - time.Minute - c.suspended
		asked.Mono = start.Mono.Add(-time.Minute)
		l, waited, err := outcome{lease: lease.Lease{Remaining: time.Hour}, asked: asked}.since(start)
		require.NoError(t, err)
		assert.Zero(t, waited, name)
		assert.Equal(t, c.remaining, l.Remaining, name)
	}
}

// A suspension of the server's machine while a request waits does not make its lease
// count from a later moment than the client can be sure of.
func TestTheTimeThatARequestWaitedIsNotLonger(t *testing.T) {
	t.Parallel()
	start := boottime.Present()
	asked := start.Add(time.Second)
	asked.Boot += time.Hour
	_, waited, err := outcome{lease: lease.Lease{Remaining: time.Hour}, asked: asked}.since(start)
	require.NoError(t, err)
	assert.Equal(t, time.Second, waited)
}

// What waits knows by the clock that ran on that the lock can be free.
func TestALockIsNotKeptLongerThanItsLeaseByASuspension(t *testing.T) {
	t.Parallel()
	q := newQueue(&Config{MaxWaiters: 1}, nil)
	lq, w := q.join(t.Context(), lease.AcquireRequest{Name: "job", Holder: "b"})
	lq.grant(lease.AcquireRequest{Holder: "a"}, outcome{lease: lease.Lease{Remaining: time.Hour}, asked: boottime.Present()})
	require.ErrorIs(t, q.giveUp(lq, w), lease.ErrHeld, "the control")
	lq.due.Boot -= time.Hour
	require.ErrorIs(t, q.giveUp(lq, w), errNotSaid)
}
