package leaseserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestAWaiterThatHangsUpLosesItsPlace(t *testing.T) {
	t.Parallel()
	store := &servetest.Spy{Store: leasetest.NewStore()}
	s, _, cl := served(t, leaseserver.Config{Store: store, PollInterval: -1})
	held := acquire(t, cl, servetest.Ask("job", "a"))
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
	record := recordOf(t, cl, "job")
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
	_, _, cl := served(t, leaseserver.Config{ /* the timeout of reading must not end it */ })
	acquire(t, cl, servetest.Ask("job", "a"))
	_, err := cl.AcquireWait(t.Context(), servetest.Ask("job", "b"), 50*time.Millisecond)
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
	_, _, cl := served(t, leaseserver.Config{Store: store, PollInterval: -1})
	acquire(t, cl, lease.AcquireRequest{Name: "job", Holder: "a", TTL: 300 * time.Millisecond})
	_, err := cl.AcquireWait(t.Context(), servetest.Ask("job", "b"), servetest.Bound)
	require.NoError(t, err)
	assert.LessOrEqual(t, store.Acquires.Load(), int64(6), "the timer, not a poll")
}

func TestARenewalPutsTheTimerOff(t *testing.T) {
	t.Parallel()
	store := &servetest.Spy{Store: leasetest.NewStore()}
	s, h, cl := served(t, leaseserver.Config{Store: store, PollInterval: -1})
	held := acquire(t, cl, lease.AcquireRequest{Name: "job", Holder: "a", TTL: 5 * time.Second})
	done := waitFor(t, h, "b", servetest.Bound)
	servetest.AwaitWaiters(t, s, 1)
	awaitStanding(t, s, "job")
	_, err := cl.Renew(t.Context(), lease.RenewRequest{Claim: held.Claim, TTL: servetest.Long})
	require.NoError(t, err)
	require.NoError(t, cl.Release(t.Context(), held.Claim))
	require.NoError(t, <-done)
	assert.Equal(t, int64(3), store.Acquires.Load())
}

func TestWhatOthersDoWithTheStoreIsFoundByLooking(t *testing.T) {
	t.Parallel()
	store := &servetest.Spy{Store: leasetest.NewStore()}
	s, h, _ := served(t, leaseserver.Config{Store: store, PollInterval: 10 * time.Millisecond})
	foreign := acquire(t, store.Store, servetest.Ask("job", "elsewhere"))
	done := waitFor(t, h, "b", servetest.Bound)
	await.Until(t, servetest.Bound, func() bool { return servetest.Metric(t, s, "lock_op_latency_ms", `"get"`) > 5 })
	require.NoError(t, store.Store.Release(t.Context(), foreign.Claim))
	require.NoError(t, <-done)
	assert.LessOrEqual(t, store.Acquires.Load(), int64(2), "it looks without asking")
}

func TestWaitersBeyondTheLimitAreRefusedAsBusy(t *testing.T) {
	t.Parallel()
	s, h, cl := served(t, leaseserver.Config{MaxWaiters: 1})
	held := acquire(t, cl, servetest.Ask("job", "a"))
	done := waitFor(t, h, "b", servetest.Bound)
	servetest.AwaitWaiters(t, s, 1)
	_, err := cl.AcquireWait(t.Context(), servetest.Ask("job", "c"), servetest.Bound)
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

// A silent store answers nothing while it is silent, until the caller's context ends.
// It tells of each question that it got then.
type silent struct {
	*leasetest.Store
	mu    sync.Mutex
	until chan struct{} // nil = it answers
	asked chan string
}

func newSilent() *silent { return &silent{Store: leasetest.NewStore(), asked: make(chan string, 1000)} }

func (s *silent) hush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = make(chan struct{})
}

func (s *silent) speak() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.until)
	s.until = nil
}

func (s *silent) wait(ctx context.Context, what string) error {
	s.mu.Lock()
	until := s.until
	s.mu.Unlock()
	if until == nil {
		return nil
	}
	s.asked <- what
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *silent) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	if err := s.wait(ctx, r.Holder); err != nil {
		return lease.Lease{}, err
	}
	return s.Store.Acquire(ctx, r)
}

func (s *silent) Get(ctx context.Context, name string) (lease.Record, error) {
	if err := s.wait(ctx, "get"); err != nil {
		return lease.Record{}, err
	}
	return s.Store.Get(ctx, name)
}

func (s *silent) Release(ctx context.Context, c lease.Claim) error {
	err := s.Store.Release(ctx, c) // it is done, and the answer does not come
	if silence := s.wait(ctx, "release"); silence != nil {
		return silence
	}
	return err
}

// A plainStore cannot hand over.
type plainStore struct{ lease.Store }

// requireUnavailable: neither held nor any error that says that the lock is kept.
func requireUnavailable(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	require.NotErrorIs(t, err, lease.ErrHeld)
	require.ErrorContains(t, err, "503")
}

// waitFor waits for job, for a time.
func waitFor(t *testing.T, h *httptest.Server, holder string, wait time.Duration) <-chan error {
	t.Helper()
	cl := servetest.Client(t, h, leasehttp.ClientConfig{Resends: -1})
	done := make(chan error, 1)
	go func() {
		_, err := cl.AcquireWait(context.WithoutCancel(t.Context()), servetest.Ask("job", holder), wait)
		done <- err
	}()
	return done
}

func TestWhileTheStoreIsSilentNobodyIsToldThatALockIsHeld(t *testing.T) {
	t.Parallel()
	store := newSilent()
	store.hush()
	s, h := servetest.Serve(t, leaseserver.Config{Store: plainStore{store}, StoreTimeout: time.Second})
	first := waitFor(t, h, "first", 100*time.Millisecond)
	require.Equal(t, "first", <-store.asked)
	behind := []<-chan error{waitFor(t, h, "second", 100*time.Millisecond), waitFor(t, h, "third", 300*time.Millisecond)}
	requireUnavailable(t, <-first)
	for _, done := range behind {
		requireUnavailable(t, <-done)
	}
	assert.Zero(t, servetest.Waiters(t, s))
	store.speak()
	require.NoError(t, <-waitFor(t, h, "later", servetest.Bound), "nobody held it")
}

// The control: with a store that answers, the same waits end with held.
func TestAWaitBehindOthersEndsWithHeldIfTheStoreSaysSo(t *testing.T) {
	t.Parallel()
	for name, poll := range map[string]time.Duration{"it looks": 20 * time.Millisecond, "it never looks": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, h := servetest.Serve(t, leaseserver.Config{Store: plainStore{newSilent()}, PollInterval: poll})
			acquire(t, servetest.Client(t, h, leasehttp.ClientConfig{}), servetest.Ask("job", "holder"))
			first := waitFor(t, h, "first", time.Second)
			for _, wait := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond} {
				require.ErrorIs(t, <-waitFor(t, h, "behind", wait), lease.ErrHeld)
			}
			require.ErrorIs(t, <-first, lease.ErrHeld)
		})
	}
}

// The store is away under all servers, while one of them is active. The control asks them again when it is back.
func TestWhileTheStoreIsSilentUnderAllServersNoneSaysThatALockIsHeld(t *testing.T) {
	t.Parallel()
	store := newSilent()
	var peers []servetest.Peer
	for range 3 {
		peers = append(peers, servetest.NewPeerOf(t, leaseserver.Config{Store: plainStore{store}, StoreTimeout: 500 * time.Millisecond}))
	}
	servetest.Elect(t, peers, 0)
	acquire(t, peers[0].Client, servetest.Ask("job", "holder"))
	store.hush()
	var wg sync.WaitGroup
	for _, p := range peers {
		client := servetest.Client(t, p.HTTP, leasehttp.ClientConfig{Resends: -1})
		for _, wait := range []time.Duration{0, 100 * time.Millisecond} {
			wg.Go(func() {
				_, err := client.AcquireWait(t.Context(), servetest.Ask("job", "other"), wait)
				if assert.Error(t, err) {
					assert.NotErrorIs(t, err, lease.ErrHeld)
					assert.ErrorContains(t, err, "503")
				}
			})
		}
	}
	wg.Wait()
	store.speak()
	for _, p := range peers {
		_, err := p.Client.Acquire(t.Context(), servetest.Ask("job", "other"))
		require.ErrorIs(t, err, lease.ErrHeld)
	}
}

func TestWhatTheStoreSaidBeforeItFellSilentIsNoAnswer(t *testing.T) {
	t.Parallel()
	store := newSilent()
	s, h := servetest.Serve(t, leaseserver.Config{Store: plainStore{store}, StoreTimeout: time.Second, PollInterval: -1})
	acquire(t, servetest.Client(t, h, leasehttp.ClientConfig{}), lease.AcquireRequest{Name: "job", Holder: "holder", TTL: 5 * time.Second})
	first := waitFor(t, h, "first", servetest.Bound) // hears that it is held
	servetest.AwaitWaiters(t, s, 1)
	await.Until(t, servetest.Bound, func() bool { return servetest.Metric(t, s, "lock_op_latency_ms", `"acquire"`) == 2 })
	store.hush()
	requireUnavailable(t, <-waitFor(t, h, "came later", 50*time.Millisecond))
	requireUnavailable(t, <-first)
}

func TestAReleaseOfWhichNothingIsHeardLeavesNobodyHeld(t *testing.T) {
	t.Parallel()
	store := newSilent()
	s, h := servetest.Serve(t, leaseserver.Config{Store: plainStore{store}, StoreTimeout: time.Second, PollInterval: -1})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{Resends: -1})
	held := acquire(t, cl, servetest.Ask("job", "holder"))
	waits := []<-chan error{waitFor(t, h, "first", servetest.Bound)}
	await.Until(t, servetest.Bound, func() bool { return servetest.Metric(t, s, "lock_op_latency_ms", `"acquire"`) == 2 })
	waits = append(waits, waitFor(t, h, "second", servetest.Bound))
	servetest.AwaitWaiters(t, s, 2)
	store.hush()
	require.Error(t, cl.Release(t.Context(), held.Claim))
	for _, done := range waits {
		requireUnavailable(t, <-done)
	}
}

func TestAStoreThatIsBusyIsNoHolder(t *testing.T) {
	t.Parallel()
	full := &servetest.Spy{Store: leasetest.NewStore(), Err: &lease.BusyError{Retry: 10 * time.Millisecond, Cause: errors.New("disk full")}}
	_, h := servetest.Serve(t, leaseserver.Config{Store: full})
	first := waitFor(t, h, "first", 200*time.Millisecond)
	behind := waitFor(t, h, "behind", 100*time.Millisecond)
	for _, done := range []<-chan error{first, behind} {
		err := <-done
		require.ErrorIs(t, err, lease.ErrBusy)
		require.NotErrorIs(t, err, lease.ErrHeld)
	}
}

func TestAStoreThatFailsIsAnUnknownOutcomeAndItsTextStaysBehind(t *testing.T) {
	t.Parallel()
	store := &servetest.Spy{Store: leasetest.NewStore(), Err: errors.New("password=secret")}
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	a := send(t, h, http.MethodPost, "/v1/locks/job/acquire", `{"owner_id":"a","ttl_ms":1000}`)
	assert.Equal(t, http.StatusServiceUnavailable, a.status)
	assert.Contains(t, a.body, "store-unavailable")
	assert.NotContains(t, a.body, "secret")
	assert.Equal(t, "1", a.header.Get("Retry-After"))
	_, err := servetest.Client(t, h, leasehttp.ClientConfig{Resends: -1}).Acquire(t.Context(), servetest.Ask("job", "a"))
	require.ErrorContains(t, err, "outcome unknown")
	require.NotErrorIs(t, err, lease.ErrBusy)
}

func TestAStoreThatIsNotReadyHasDoneNothingForSure(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{lease.ErrNotReady, lease.ErrClosed} {
		_, h := servetest.Serve(t, leaseserver.Config{Store: &servetest.Spy{Store: leasetest.NewStore(), Err: fmt.Errorf("host=secret: %w", failure)}})
		a := send(t, h, http.MethodPost, "/v1/locks/job/acquire", `{"owner_id":"a","ttl_ms":1000}`)
		assert.Equal(t, http.StatusServiceUnavailable, a.status)
		assert.Contains(t, a.body, "store-not-ready")
		assert.NotContains(t, a.body, "secret")
		_, err := servetest.Client(t, h, leasehttp.ClientConfig{}).Acquire(t.Context(), servetest.Ask("job", "a"))
		require.ErrorIs(t, err, lease.ErrNotReady)
	}
}
