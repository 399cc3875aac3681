package leaseserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestManyWaitersAreServedInOrder(t *testing.T) {
	t.Parallel()
	const wait = 20 * time.Minute
	n := soak.Size(t, 200, 1000)
	store := &servetest.Spy{Store: leasetest.NewStore()}
	s, h := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: -1, MaxWait: wait})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	first, err := cl.Acquire(t.Context(), servetest.Ask("job", "first"))
	require.NoError(t, err)
	var (
		mu    sync.Mutex
		order []int
		wg    sync.WaitGroup
	)
	for i := range n {
		wg.Go(func() {
			l, err := cl.AcquireWait(t.Context(), servetest.Ask("job", fmt.Sprint(i)), wait)
			if !assert.NoError(t, err) {
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			assert.NoError(t, cl.Release(t.Context(), l.Claim))
		})
		servetest.AwaitWaiters(t, s, i+1)
	}
	require.NoError(t, cl.Release(t.Context(), first.Claim))
	wg.Wait()
	require.Len(t, order, n)
	for i, got := range order {
		require.Equal(t, i, got)
	}
	assert.LessOrEqual(t, store.Acquires.Load(), int64(n+n/5), "asking without a grant is what the line is for")
	assert.Zero(t, servetest.Waiters(t, s))
}

func TestAWaiterThatHangsUpLosesItsPlace(t *testing.T) {
	t.Parallel()
	store := &servetest.Spy{Store: leasetest.NewStore()}
	s, h := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: -1})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	held, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	const n = 5
	got := make(chan string, n)
	var cancels []context.CancelFunc
	var wg sync.WaitGroup
	for i := range n {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cancels = append(cancels, cancel)
		wg.Go(func() {
			l, err := cl.AcquireWait(ctx, servetest.Ask("job", fmt.Sprint(i)), time.Minute)
			if err != nil {
				return
			}
			got <- l.Holder
			assert.NoError(t, cl.Release(t.Context(), l.Claim))
		})
		servetest.AwaitWaiters(t, s, i+1)
	}
	for gone, i := range []int{2, 0} { // from the middle, and the first
		cancels[i]()
		servetest.AwaitWaiters(t, s, n-1-gone)
	}
	require.NoError(t, cl.Release(t.Context(), held.Claim))
	wg.Wait()
	close(got)
	var order []string
	for holder := range got {
		order = append(order, holder)
	}
	assert.Equal(t, []string{"1", "3", "4"}, order)
	record, err := cl.Get(t.Context(), "job")
	require.NoError(t, err)
	assert.Equal(t, lease.Free, record.State)
}

func TestALeaseThatNobodyTakesAnyMoreIsGivenBack(t *testing.T) {
	t.Parallel()
	ctx, hangUp := context.WithCancel(t.Context())
	requests := make(chan context.Context, 2)
	store := &servetest.Spy{Store: leasetest.NewStore(), After: sync.OnceFunc(func() {
		hangUp()
		<-(<-requests).Done() // the server has heard of it
	})}
	_, h := servetest.Serve(t, leaseserver.Config{Store: store, Authorize: func(r *http.Request) error {
		requests <- r.Context()
		return nil
	}})
	_, err := post(ctx, h, "/v1/locks/job/acquire?wait=1m", `{"owner_id":"a","ttl_ms":3600000}`)
	require.ErrorIs(t, err, context.Canceled)
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	l, err := cl.AcquireWait(t.Context(), servetest.Ask("job", "b"), servetest.Bound)
	require.NoError(t, err)
	assert.Equal(t, "b", l.Holder)
}

func TestAWaitEndsWithTheHolder(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{ /* the timeout of reading must not end it */ })
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	_, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	_, err = cl.AcquireWait(t.Context(), servetest.Ask("job", "b"), 50*time.Millisecond)
	held, ok := errors.AsType[*lease.HeldError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "a", held.Holder)
	assert.Greater(t, held.Remaining, servetest.Long-time.Minute)
	assert.Positive(t, held.Retry)
	assert.LessOrEqual(t, held.Retry, 2*time.Second)
}

func TestAWaitThatIsTooShortStillTriesOnce(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{})
	_, err := servetest.Client(t, h, leasehttp.ClientConfig{}).AcquireWait(t.Context(), servetest.Ask("job", "a"), time.Nanosecond)
	require.NoError(t, err)
}

func TestExpiryIsNoticedByATimer(t *testing.T) {
	t.Parallel()
	store := &servetest.Spy{Store: leasetest.NewStore()}
	_, h := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: -1})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	_, err := cl.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: 300 * time.Millisecond})
	require.NoError(t, err)
	_, err = cl.AcquireWait(t.Context(), servetest.Ask("job", "b"), servetest.Bound)
	require.NoError(t, err)
	assert.LessOrEqual(t, store.Acquires.Load(), int64(6), "the timer, not a poll")
}

func TestARenewalPutsTheTimerOff(t *testing.T) {
	t.Parallel()
	store := &servetest.Spy{Store: leasetest.NewStore()}
	s, h := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: -1})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	held, err := cl.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: 5 * time.Second})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := cl.AcquireWait(context.WithoutCancel(t.Context()), servetest.Ask("job", "b"), servetest.Bound)
		done <- err
	}()
	servetest.AwaitWaiters(t, s, 1)
	awaitStanding(t, s, "job")
	_, err = cl.Renew(t.Context(), lease.RenewRequest{Claim: held.Claim, TTL: servetest.Long})
	require.NoError(t, err)
	require.NoError(t, cl.Release(t.Context(), held.Claim))
	require.NoError(t, <-done)
	assert.Equal(t, int64(3), store.Acquires.Load())
}

func TestWhatOthersDoWithTheStoreIsFoundByLooking(t *testing.T) {
	t.Parallel()
	store := &servetest.Spy{Store: leasetest.NewStore()}
	s, h := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: 10 * time.Millisecond})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	foreign, err := store.Store.Acquire(t.Context(), servetest.Ask("job", "elsewhere"))
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := cl.AcquireWait(context.WithoutCancel(t.Context()), servetest.Ask("job", "b"), servetest.Bound)
		done <- err
	}()
	await.Until(t, servetest.Bound, func() bool { return servetest.Metric(t, s, "lock_op_latency_ms", `"get"`) > 5 })
	require.NoError(t, store.Store.Release(t.Context(), foreign.Claim))
	require.NoError(t, <-done)
	assert.LessOrEqual(t, store.Acquires.Load(), int64(2), "it looks without asking")
}

func TestWaitersBeyondTheLimitAreRefusedAsBusy(t *testing.T) {
	t.Parallel()
	s, h := servetest.Serve(t, leaseserver.Config{MaxWaiters: 1})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	held, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := cl.AcquireWait(context.WithoutCancel(t.Context()), servetest.Ask("job", "b"), servetest.Bound)
		done <- err
	}()
	servetest.AwaitWaiters(t, s, 1)
	_, err = cl.AcquireWait(t.Context(), servetest.Ask("job", "c"), servetest.Bound)
	require.ErrorIs(t, err, lease.ErrBusy)
	require.NoError(t, cl.Release(t.Context(), held.Claim))
	require.NoError(t, <-done)
}

func TestABusyStoreIsAskedAgainByTheWaiter(t *testing.T) {
	t.Parallel()
	busy := &flaky{Store: leasetest.NewStore(), busy: 3}
	s, h := servetest.Serve(t, leaseserver.Config{Store: busy})
	_, err := servetest.Client(t, h, leasehttp.ClientConfig{}).AcquireWait(t.Context(), servetest.Ask("job", "a"), servetest.Bound)
	require.NoError(t, err)
	assert.InDelta(t, 3, servetest.Metric(t, s, "lock_db_busy_total", `"acquire"`), 0)
	assert.InDelta(t, 1, servetest.Metric(t, s, "lock_acquire_total", `"success"`), 0)
}

// A flaky store is busy a few times.
type flaky struct {
	lease.Store
	mu   sync.Mutex
	busy int
}

func (f *flaky) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy > 0 {
		f.busy--
		return lease.Lease{}, &lease.BusyError{Retry: time.Millisecond, Cause: errors.New("busy")}
	}
	return f.Store.Acquire(ctx, r)
}
