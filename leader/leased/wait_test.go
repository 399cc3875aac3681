package leased_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease"
)

func TestAWaitBeforeTheFirstAttemptReturns(t *testing.T) {
	t.Parallel()
	store := newFaulty()
	lead(t, newBackend(t, store), "a")
	require.NoError(t, newBackend(t, store).Wait(t.Context()))
}

func TestAWaitOnAStoreThatFailsTellsIt(t *testing.T) {
	t.Parallel()
	store := newFaulty()
	lead(t, newBackend(t, store), "a")
	b := newBackend(t, store)
	refused(t, b, "b")
	store.set(func(f *faulty) { f.refusal = errReset })
	require.ErrorIs(t, b.Wait(t.Context()), errReset)
}

// queue makes a waiting store of any, by asking when it should.
type queue struct {
	*faulty
	free chan struct{}
}

func newQueue() queue { return queue{newFaulty(), make(chan struct{}, 1)} }

func (q queue) AcquireWait(ctx context.Context, r lease.AcquireRequest, wait time.Duration) (lease.Lease, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-q.free:
	case <-timer.C:
	case <-ctx.Done():
		return lease.Lease{}, context.Cause(ctx)
	}
	return q.Acquire(ctx, r)
}

func TestWhatAWaitGotIsProlongedByTheAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		a, b, c := newBackend(t, q), newBackend(t, q), newBackend(t, q)
		lead(t, a, "a")
		refused(t, b, "b")
		release(t, a)
		q.free <- struct{}{}
		require.NoError(t, b.Wait(t.Context()))
		refused(t, c, "c")
		got := record(t, q).Claim
		bubble.Sleep(ttl / 2)
		lead(t, b, "b")
		r := record(t, q)
		assert.Equal(t, got, r.Claim)
		assert.Equal(t, ttl, r.Remaining)

		// Or it has expired meanwhile.
		release(t, b)
		q.free <- struct{}{}
		require.NoError(t, c.Wait(t.Context()))
		got = record(t, q).Claim
		bubble.Sleep(ttl)
		lead(t, c, "c")
		assert.Equal(t, got.Token+1, c.Term().Uint64())
	})
}

func TestAWaitInLineEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		a, b := newBackend(t, q), newBackend(t, q)
		lead(t, a, "a")
		refused(t, b, "b")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, b.Wait(ctx), context.DeadlineExceeded)
		assert.Equal(t, 2*time.Second, time.Since(began))
		release(t, a)
		lead(t, a, "a")
	})
}

// giveUpHalfWay makes b, on the store with the faults of q, end its Wait while the answer to its request is under way: a has led
// before, and the request has got the lease. It returns the lease.
func giveUpHalfWay(t *testing.T, q queue, a, b *leased.Backend) lease.Claim {
	t.Helper()
	lead(t, a, "a")
	refused(t, b, "b")
	release(t, a)
	q.set(func(f *faulty) { f.hang = true })
	q.free <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- b.Wait(ctx) }()
	synctest.Wait()
	got := record(t, q).Claim
	require.Equal(t, "b", got.Holder)
	q.set(func(f *faulty) { f.hang = false })
	cancel()
	require.ErrorIs(t, <-over, context.Canceled)
	return got
}

func TestAWaitThatIsGivenUpHalfWayGivesBackWhatItGot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		a, b := newBackend(t, q), newBackend(t, q)
		giveUpHalfWay(t, q, a, b)
		lead(t, a, "a")
	})
}

// lateRelease is a queue whose next release gets no answer, and arrives when it is let through.
type lateRelease struct {
	queue
	arrive chan func() error
}

func (q lateRelease) Release(ctx context.Context, c lease.Claim) error {
	select {
	case q.arrive <- func() error { return q.queue.Release(context.Background(), c) }:
		<-ctx.Done()
		return context.Cause(ctx)
	default:
		return q.queue.Release(ctx, c)
	}
}

// A release without an answer can arrive at any time, so the next attempt must not continue its lease.
func TestALeaseWhoseReleaseGotNoAnswerIsNotContinued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := lateRelease{newQueue(), make(chan func() error, 1)}
		a, b := newBackend(t, q.queue), newBackend(t, q)
		got := giveUpHalfWay(t, q.queue, a, b)
		require.Equal(t, got, record(t, q).Claim, "the release has not arrived")
		lead(t, b, "b")
		assert.Greater(t, record(t, q).Token, got.Token)
		require.ErrorIs(t, (<-q.arrive)(), lease.ErrStale)
		require.NoError(t, b.Renew(t.Context(), "b", ttl), "it leads beside nobody")
		refused(t, a, "a")
	})
}

func TestPollsAreJittered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		b, err := leased.New(store, leased.Config{Name: name, PollInterval: time.Minute})
		require.NoError(t, err)
		a := newBackend(t, store)
		lead(t, a, "a")
		refused(t, b, "b")
		took := map[time.Duration]bool{}
		for range 10 {
			began, over := time.Now(), make(chan error)
			go func() { over <- b.Wait(t.Context()) }()
			synctest.Wait()
			release(t, a)
			require.NoError(t, <-over)
			assert.InDelta(t, time.Minute, time.Since(began), float64(15*time.Second))
			took[time.Since(began)] = true
			lead(t, a, "a")
		}
		assert.Greater(t, len(took), 1)
	})
}

func TestAWaitThatIsCancelledEndsSoonWhateverThePollInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		a := newBackend(t, q)
		b, err := leased.New(q, leased.Config{Name: name, PollInterval: 10 * time.Minute})
		require.NoError(t, err)
		lead(t, a, "a")
		refused(t, b, "b")
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- b.Wait(ctx) }()
		bubble.Sleep(time.Second)
		began := time.Now()
		cancel()
		require.ErrorIs(t, <-over, context.Canceled)
		assert.LessOrEqual(t, time.Since(began), 3*time.Second)
	})
}

// hasty is a WaitingStore that lets nobody wait.
type hasty struct {
	leased.Store
	asked int
}

func (h *hasty) AcquireWait(ctx context.Context, r lease.AcquireRequest, _ time.Duration) (lease.Lease, error) {
	h.asked++
	return h.Acquire(ctx, r)
}

func TestAStoreThatLetsNobodyWaitIsNotAskedAllTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hasty{Store: newFaulty()}
		a, b := newBackend(t, h), newBackend(t, h)
		lead(t, a, "a")
		refused(t, b, "b")
		ctx, cancel := context.WithTimeout(t.Context(), 10*leased.DefaultPollInterval)
		defer cancel()
		require.Error(t, b.Wait(ctx))
		assert.LessOrEqual(t, h.asked, 11)
	})
}

func TestAnAttemptThatFailedLeadsNoMore(t *testing.T) {
	t.Parallel()
	store := newFaulty()
	a := newBackend(t, store)
	lead(t, a, "a")
	store.set(func(f *faulty) { f.refusal = errReset })
	_, err := a.TryAcquire(t.Context(), "a", ttl)
	require.Error(t, err)
	store.set(func(f *faulty) { f.refusal = nil })
	require.ErrorIs(t, a.Renew(t.Context(), "a", ttl), leader.ErrLost)
	lead(t, a, "a")
}
