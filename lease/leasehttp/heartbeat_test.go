package leasehttp_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestAHeartbeatKeepsALeaseAndReleaseOnceEndsIt(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	s, _, cl := served(t, leaseserver.Config{Store: store})
	l := acquireWithRetry(t, cl, "job", "a", leasehttp.AcquireOptions{TTL: time.Minute})
	work, errs := cl.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{Interval: 10 * time.Millisecond})
	await.Until(t, await.Soon, func() bool { return servetest.Metric(t, s, "lock_renew_total", `"success"`) > 5 })
	require.NoError(t, work.Err())
	assert.Equal(t, l.FencingToken(), leasehttp.FencingToken(work))
	assert.Equal(t, l.FencingTokenValue(), l.Claim().Token)
	assert.Positive(t, l.Remaining())

	require.NoError(t, cl.ReleaseOnce(t.Context(), l))
	require.NoError(t, cl.ReleaseOnce(t.Context(), l))
	<-work.Done()
	_, open := <-errs
	assert.False(t, open)
	record := recordOf(t, store, "job")
	assert.Equal(t, lease.Free, record.State)
}

// A hung transport never answers and does not heed the request's context.
type hung struct{ release chan struct{} }

func (h hung) RoundTrip(*http.Request) (*http.Response, error) {
	<-h.release
	return nil, errLostAnswer
}

func TestTheWorkEndsAlsoWhenARenewalHangs(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{})
	transport := &lossy{RoundTripper: http.DefaultTransport.(*http.Transport).Clone()}
	cl := servetest.Client(t, h, leasehttp.ClientConfig{HTTPClient: &http.Client{Transport: transport}})
	l := acquireWithRetry(t, cl, "job", "a", leasehttp.AcquireOptions{TTL: 500 * time.Millisecond})
	transport.CloseIdleConnections()
	stuck := hung{make(chan struct{})}
	transport.mu.Lock()
	transport.RoundTripper = stuck
	transport.mu.Unlock()
	work, _ := cl.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{Interval: 10 * time.Millisecond})
	<-work.Done()
	require.ErrorIs(t, context.Cause(work), leasehttp.ErrLost)
	close(stuck.release)
}

func TestALeaseThatAnotherHasIsLostAtOnce(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, _, cl := served(t, leaseserver.Config{Store: store})
	l := acquireWithRetry(t, cl, "job", "a", leasehttp.AcquireOptions{TTL: servetest.Long})
	require.NoError(t, store.Release(t.Context(), l.Claim()))
	acquire(t, store, servetest.Ask("job", "b"))
	work, errs := cl.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{Interval: 10 * time.Millisecond})
	<-work.Done()
	lost, ok := errors.AsType[*leasehttp.LostError](context.Cause(work))
	require.True(t, ok)
	require.ErrorIs(t, lost, lease.ErrStale)
	require.ErrorIs(t, <-errs, lease.ErrStale)
	_, open := <-errs
	assert.False(t, open)
	require.ErrorIs(t, cl.ReleaseOnce(t.Context(), l), lease.ErrStale)
	require.ErrorIs(t, cl.ReleaseOnce(t.Context(), l), lease.ErrStale)
}

// A shifted store has a clock that is hours off from the client's.
type shifted struct {
	lease.Store
	by time.Duration
}

func (s shifted) shift(l lease.Lease, err error) (lease.Lease, error) {
	l.AcquiredAt, l.ExpiresAt = l.AcquiredAt.Add(s.by), l.ExpiresAt.Add(s.by)
	return l, err
}

func (s shifted) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	return s.shift(s.Store.Acquire(ctx, r))
}

func (s shifted) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	return s.shift(s.Store.Renew(ctx, r))
}

func TestClocksThatAreHoursOffChangeNothing(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{-5 * time.Hour, 5 * time.Hour} {
		s, _, cl := served(t, leaseserver.Config{Store: shifted{leasetest.NewStore(), by}})
		l := acquireWithRetry(t, cl, "job", "a", leasehttp.AcquireOptions{TTL: time.Minute})
		assert.Greater(t, l.Remaining(), 30*time.Second)
		assert.LessOrEqual(t, l.Remaining(), 54*time.Second, "the margin is a tenth")
		work, _ := cl.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{Interval: 5 * time.Millisecond})
		await.Until(t, await.Soon, func() bool { return servetest.Metric(t, s, "lock_renew_total", `"success"`) > 2 })
		require.NoError(t, work.Err())
		assert.LessOrEqual(t, l.Remaining(), 54*time.Second)
		require.NoError(t, cl.ReleaseOnce(t.Context(), l))
	}
}

func TestRetriesAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options  leasehttp.AcquireOptions
		requests int64
	}{
		{leasehttp.AcquireOptions{NoLongPoll: true, MaxAttempts: 3}, 3},
		{leasehttp.AcquireOptions{MaxWait: 30 * time.Millisecond}, 1},
		{leasehttp.AcquireOptions{MaxWait: time.Nanosecond, NoLongPoll: true}, 1},
	} {
		store := &servetest.Spy{Store: leasetest.NewStore()}
		_, _, cl := served(t, leaseserver.Config{Store: store})
		acquire(t, cl, lease.AcquireRequest{Name: "job", Holder: "a", TTL: servetest.Long})
		_, err := cl.AcquireWithRetry(t.Context(), "job", "b", c.options)
		require.ErrorIs(t, err, lease.ErrHeld)
		assert.Equal(t, c.requests+1, store.Acquires.Load())
	}
}

func TestAServerThatComesBackIsAskedAgain(t *testing.T) {
	t.Parallel()
	cl, transport := lossyClient(t, leasetest.NewStore(), leasehttp.ClientConfig{Resends: -1})
	transport.gone.Store(true)
	time.AfterFunc(100*time.Millisecond, func() { transport.gone.Store(false) })
	l := acquireWithRetry(t, cl, "job", "a", leasehttp.AcquireOptions{})
	assert.Equal(t, uint64(1), l.FencingToken())
	transport.gone.Store(true)
	_, err := cl.AcquireWithRetry(t.Context(), "job", "a", leasehttp.AcquireOptions{MaxAttempts: 2})
	require.ErrorIs(t, err, errLostAnswer)
	_, err = cl.AcquireWithRetry(t.Context(), "", "a", leasehttp.AcquireOptions{})
	require.ErrorIs(t, err, lease.ErrInvalid)
}

func TestARetryThatTheContextEndsSaysSo(t *testing.T) {
	t.Parallel()
	_, _, cl := served(t, leaseserver.Config{})
	acquire(t, cl, servetest.Ask("job", "a"))
	for _, noPoll := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := cl.AcquireWithRetry(ctx, "job", "b", leasehttp.AcquireOptions{NoLongPoll: noPoll, MaxWait: -1})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}

func TestDoRunsUnderALeaseAndTellsItsLoss(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{TTL: 6 * time.Second})
	boom := errors.New("boom")
	require.ErrorIs(t, cl.Do(t.Context(), "job", func(ctx context.Context) error {
		assert.Equal(t, uint64(1), leasehttp.FencingToken(ctx))
		return boom
	}), boom)
	err := cl.Do(t.Context(), "job", func(ctx context.Context) error {
		l, ok := leasehttp.FromContext(ctx)
		require.True(t, ok)
		require.NoError(t, store.Release(ctx, l.Claim()))
		<-ctx.Done()
		return nil
	})
	require.ErrorIs(t, err, leasehttp.ErrLost)
	assert.Zero(t, leasehttp.FencingToken(t.Context()))
}

func TestCloseEndsHeartbeats(t *testing.T) {
	t.Parallel()
	_, _, cl := served(t, leaseserver.Config{})
	l := acquireWithRetry(t, cl, "job", "a", leasehttp.AcquireOptions{})
	work, errs := cl.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{})
	cl.Close()
	<-work.Done()
	for range errs {
	}
	work, errs = cl.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{})
	<-work.Done()
	require.ErrorIs(t, <-errs, leasehttp.ErrLost)
}

// Machine and process stood still while the lease ended: nothing but the clock knows.
func TestWorkIsLostAtTheFirstLookAfterASuspension(t *testing.T) {
	t.Parallel()
	for _, suspended := range []time.Duration{time.Minute, time.Hour} {
		cl, _ := lossyClient(t, leasetest.NewStore(), leasehttp.ClientConfig{})
		l := acquireWithRetry(t, cl, "job", "a", leasehttp.AcquireOptions{TTL: time.Hour})
		work, _ := cl.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{})
		derived, cancel := context.WithCancel(work)
		defer cancel()
		require.NoError(t, work.Err())
		l.Suspend(suspended)
		if suspended < time.Hour {
			require.NoError(t, work.Err(), "the control")
			continue
		}
		require.NoError(t, derived.Err(), "it has no clock of its own")
		require.ErrorIs(t, work.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(work), leasehttp.ErrLost)
		require.ErrorIs(t, derived.Err(), context.Canceled)
	}
}

func TestTheWorkEndsBeforeAnotherCanHaveTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := keep(t, 1, leaseserver.Config{})
		defer f.client.Close()
		l := f.leases[0]
		work, errs := f.client.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{})
		f.breaks(func(*http.Request, func() *http.Response) (*http.Response, error) { return nil, errLostAnswer })
		<-work.Done()
		record := recordOf(t, f.store, l.Claim().Name)
		assert.Equal(t, lease.Held, record.State, "the store still keeps it for the work that ends")
		require.ErrorIs(t, context.Cause(work), leasehttp.ErrLost)
		assert.Zero(t, l.Remaining())
		var last error
		for err := range errs {
			last = err
		}
		require.ErrorIs(t, last, leasehttp.ErrLost)
	})
}

func TestALeaseThatEndsBeforeAnIntervalIsRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, options := range map[string]leasehttp.HeartbeatOptions{
			"it was acquired long ago": {},
			"its interval is too long": {Interval: flockTTL},
		} {
			f := keep(t, 0, leaseserver.Config{})
			l := acquireWithRetry(t, f.client, "job", "a", leasehttp.AcquireOptions{})
			if options.Interval == 0 {
				bubble.Sleep(flockTTL * 3 / 4)
			}
			work, _ := f.client.StartHeartbeat(t.Context(), l, options)
			bubble.Sleep(10 * flockTTL)
			require.NoError(t, work.Err(), name)
			f.client.Close()
		}
	})
}

func TestARenewalAfterTheDeadlineRevivesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := keep(t, 1, leaseserver.Config{})
		defer f.client.Close()
		l := f.leases[0]
		f.breaks(func(_ *http.Request, serve func() *http.Response) (*http.Response, error) {
			l.Suspend(flockTTL) // and no timer has run when the answer comes
			return serve(), nil
		})
		<-f.works[0].Done()
		require.ErrorIs(t, context.Cause(f.works[0]), leasehttp.ErrLost)
		assert.Zero(t, l.Remaining())
	})
}

func TestWaitingInTheLineTakesNothingOfTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := keep(t, 0, leaseserver.Config{})
		defer f.client.Close()
		const wait = 19 * time.Second
		acquire(t, f.store, lease.AcquireRequest{Name: "job", Holder: "a", TTL: wait})
		began := time.Now()
		l := acquireWithRetry(t, f.client, "job", "b", leasehttp.AcquireOptions{TTL: time.Minute})
		assert.GreaterOrEqual(t, time.Since(began), wait)
		assert.Greater(t, l.Remaining(), time.Minute*9/10-10*time.Millisecond, "the margin is a tenth")
	})
}

// heartbeatBeside starts a heartbeat whose server goes silent, before others that go on. Only the end of the lease bounds a
// sending. The TTL is long because a pause of the machine counts in a bubble, too.
func heartbeatBeside(t *testing.T, others ...string) (client *leasehttp.Client, work context.Context, renewals func() uint64) {
	t.Helper()
	const first = "first"
	store := leasetest.NewStore()
	server, err := leaseserver.New(leaseserver.Config{Store: store, PollInterval: -1})
	require.NoError(t, err)
	d := &direct{handler: server.Handler(), sent: make(map[string]int)}
	urls := []string{"http://" + first}
	for _, other := range others {
		urls = append(urls, "http://"+other)
	}
	client, err = leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: urls, HTTPClient: &http.Client{Transport: d}, TTL: time.Minute, Timeout: time.Hour})
	require.NoError(t, err)
	l := acquireWithRetry(t, client, "job", "a", leasehttp.AcquireOptions{})
	d.breaks(func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
		if r.URL.Host != first {
			return serve(), nil
		}
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	})
	work, _ = client.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{})
	before := recordOf(t, store, "job")
	return client, work, func() uint64 {
		now := recordOf(t, store, "job")
		return now.Version - before.Version
	}
}

func TestAHeartbeatLeavesASilentServerBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, work, renewals := heartbeatBeside(t, "second")
		defer client.Close()
		for renewals() < 2 && work.Err() == nil {
			bubble.Sleep(100 * time.Millisecond)
		}
		require.NoError(t, work.Err())
	})
}

func TestAHeartbeatWithoutAnotherServerIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, work, renewals := heartbeatBeside(t)
		defer client.Close()
		<-work.Done()
		require.ErrorIs(t, context.Cause(work), leasehttp.ErrLost)
		assert.Zero(t, renewals())
	})
}
