package leaseserver_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
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

// A seen is what a request that watched was answered.
type seen struct {
	lease.Record
	err error
}

// watching asks for the version after one, and returns when the request waits.
func watching(t *testing.T, s *leaseserver.Server, cl *leasehttp.Client, name string, version uint64) <-chan seen {
	t.Helper()
	answered := make(chan seen, 1)
	before := servetest.Waiters(t, s)
	go func() {
		r, err := cl.GetAfter(context.WithoutCancel(t.Context()), name, version, time.Minute)
		answered <- seen{r, err}
	}()
	servetest.AwaitWaiters(t, s, before+1)
	return answered
}

func TestAWatchIsAnsweredAtEachChangeWithoutPolling(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	s, _, cl := served(t, leaseserver.Config{Store: store, PollInterval: -1, MaxWait: time.Minute})
	var l lease.Lease
	var version uint64
	for _, c := range []struct {
		what   string
		change func() error
		state  lease.State
	}{
		{"the first lease", func() (err error) { l, err = cl.Acquire(t.Context(), servetest.Ask("job", "a")); return err }, lease.Held},
		{"a renewal", func() error {
			_, err := cl.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: servetest.Long, Metadata: map[string]string{"part": "2"}})
			return err
		}, lease.Held},
		{"one of many renewals", func() error {
			other := acquire(t, cl, servetest.Ask("other", "a"))
			results, _ := cl.RenewAll(t.Context(), []lease.RenewRequest{{Claim: other.Claim, TTL: servetest.Long}, {Claim: l.Claim, TTL: servetest.Long}})
			return results[1].Err
		}, lease.Held},
		{"a release", func() error { return cl.Release(t.Context(), l.Claim) }, lease.Free},
		{"a new lease", func() (err error) { l, err = cl.Acquire(t.Context(), servetest.Ask("job", "a")); return err }, lease.Held},
	} {
		answered := watching(t, s, cl, "job", version)
		require.NoError(t, c.change(), c.what)
		got := <-answered
		require.NoError(t, got.err, c.what)
		assert.Greater(t, got.Version, version, c.what)
		assert.Equal(t, c.state, got.State, c.what)
		version = got.Version
	}

	next := make(chan lease.Lease, 1)
	go func() {
		l, _ := cl.AcquireWait(context.WithoutCancel(t.Context()), servetest.Ask("job", "b"), time.Minute)
		next <- l
	}()
	awaitStanding(t, s, "job")
	answered := watching(t, s, cl, "job", version)
	require.NoError(t, cl.Release(t.Context(), l.Claim))
	<-next
	assert.Equal(t, "b", (<-answered).Holder, "a hand-over")
}

func TestAWatchIsAnsweredInTheEndWithWhatIs(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	s, h, cl := served(t, leaseserver.Config{Store: store, PollInterval: -1, MaxWait: 3 * aMoment})
	l := acquire(t, cl, servetest.Ask("job", "a"))
	record := recordOf(t, store, "job")
	for _, version := range []uint64{record.Version, record.Version + 7, record.Version - 1} { // none newer, of a store before, older
		got, err := cl.GetAfter(t.Context(), "job", version, time.Hour)
		require.NoError(t, err)
		assert.Equal(t, record.Version, got.Version)
	}
	_, err := cl.GetAfter(t.Context(), "never", 0, time.Hour)
	require.ErrorIs(t, err, lease.ErrNotFound)
	_, err = cl.GetAfter(t.Context(), "never", 7, time.Hour)
	require.ErrorIs(t, err, lease.ErrNotFound)
	assert.Zero(t, servetest.Waiters(t, s))
	for target, status := range map[string]int{
		"?index=x": 400, "?index=-1": 400, "?wait=1": 400, "?wait=-1s": 422, "?index=99999999999999999999": 422, "?after=1": 400, "?index=1": 200, "?wait=1ms": 200,
	} {
		assert.Equal(t, status, send(t, h, http.MethodGet, "/v1/locks/job"+target, "").status, target)
	}
	require.NoError(t, cl.Release(t.Context(), l.Claim))
}

func TestAWatchSeesWhatOthersDoToTheStoreWithinThePollInterval(t *testing.T) {
	t.Parallel()
	for _, poll := range []time.Duration{aMoment, -1} { // the control: nobody looks
		store := leasetest.NewStore()
		s, _, cl := served(t, leaseserver.Config{Store: store, PollInterval: poll})
		answered := watching(t, s, cl, "job", 0)
		await.Until(t, servetest.Bound, func() bool { return servetest.Metric(t, s, "lock_op_latency_ms", `"get"`) > 0 })
		acquire(t, store, servetest.Ask("job", "a"))
		if poll < 0 {
			require.NoError(t, s.Shutdown(t.Context()))
			require.ErrorIs(t, (<-answered).err, lease.ErrBusy, "it waited until it was sent away")
			continue
		}
		assert.Equal(t, "a", (<-answered).Holder)
	}
}

func TestWatchesAreBoundedAndEndWithTheirClients(t *testing.T) {
	t.Parallel()
	s, h := servetest.Serve(t, leaseserver.Config{MaxWaiters: 2, PollInterval: -1})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{Resends: -1})
	ctx, hangUp := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			_, err := cl.GetAfter(ctx, "job", 0, time.Minute)
			assert.Error(t, err)
		})
	}
	servetest.AwaitWaiters(t, s, 2)
	_, err := cl.GetAfter(t.Context(), "job", 0, time.Minute)
	require.ErrorIs(t, err, lease.ErrBusy)
	hangUp()
	wg.Wait()
	servetest.AwaitWaiters(t, s, 0)
	_, err = cl.GetAfter(t.Context(), "job", 0, time.Millisecond)
	require.ErrorIs(t, err, lease.ErrNotFound)
}

// Who may only read could keep everybody from waiting for a lock otherwise.
func TestWatchesTakeNoPlaceOfThoseWhoWaitForALock(t *testing.T) {
	t.Parallel()
	s, h := servetest.Serve(t, leaseserver.Config{MaxWaiters: 1, PollInterval: -1})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{Resends: -1})
	ctx, hangUp := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := cl.GetAfter(ctx, "watched", 0, time.Minute)
		assert.Error(t, err)
	})
	servetest.AwaitWaiters(t, s, 1)
	first := acquire(t, cl, servetest.Ask("job", "a"))
	wg.Go(func() {
		_, err := cl.AcquireWait(t.Context(), servetest.Ask("job", "b"), time.Minute)
		assert.NoError(t, err)
	})
	servetest.AwaitWaiters(t, s, 2)
	require.NoError(t, cl.Release(t.Context(), first.Claim))
	servetest.AwaitWaiters(t, s, 1)
	hangUp()
	wg.Wait()
}

// A counting store counts the looks at a name.
type counting struct {
	lease.Store
	gets atomic.Int64
	once func() // after the first look, before it is told; nil = nothing
}

func (c *counting) Get(ctx context.Context, name string) (lease.Record, error) {
	first := c.gets.Add(1) == 1
	r, err := c.Store.Get(ctx, name)
	if first && c.once != nil {
		c.once()
	}
	return r, err
}

func TestAChangeWhileAWatchLooksIsNotMissed(t *testing.T) {
	t.Parallel()
	store := &counting{Store: leasetest.NewStore()}
	_, h := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: -1})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{Resends: -1})
	l := acquire(t, cl, servetest.Ask("job", "a"))
	before := recordOf(t, store.Store, "job")
	store.once = func() { assert.NoError(t, cl.Release(context.WithoutCancel(t.Context()), l.Claim)) }
	ctx, cancel := context.WithTimeout(t.Context(), servetest.Bound)
	defer cancel()
	after, err := cl.GetAfter(ctx, "job", before.Version, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, lease.Free, after.State)
}

func TestAChangeCostsOneLookHoweverManyWatch(t *testing.T) {
	t.Parallel()
	const watchers = 50
	store := &counting{Store: leasetest.NewStore()}
	s, _, cl := served(t, leaseserver.Config{Store: store, PollInterval: -1})
	var all []<-chan seen
	for i := range watchers {
		all = append(all, watching(t, s, cl, "job", 0))
		await.Until(t, servetest.Bound, func() bool { return store.gets.Load() == int64(i+1) }, "two that come together share a look")
	}
	acquire(t, cl, servetest.Ask("job", "a"))
	for _, answered := range all {
		assert.Equal(t, "a", (<-answered).Holder)
	}
	assert.Equal(t, int64(watchers+1), store.gets.Load())
}

// Such a client would keep its connection, and what serves it, for ever.
func TestAWatchWhoseBodyNeverComesIsCutOff(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "Content-Length: 10\r\n", "Transfer-Encoding: chunked\r\n"} {
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			s := run(t, leaseserver.Config{Store: leasetest.NewStore(), ReadTimeout: 2 * time.Second, IdleTimeout: time.Millisecond})
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
			require.NoError(t, err)
			require.NoError(t, conn.SetDeadline(time.Now().Add(servetest.Bound)))
			_, err = io.WriteString(conn, "GET /v1/locks/job?wait=1ms&index=0 HTTP/1.1\r\nHost: localhost\r\n"+body+"\r\n")
			require.NoError(t, err)
			answer, err := io.ReadAll(conn)
			require.NoError(t, err, "the connection ends")
			assert.Contains(t, string(answer), "HTTP/1.1 404 ")
			require.NoError(t, conn.Close())
		})
	}
}

// However many watch, and whenever they come back, each hears of the last change.
func TestNoWatcherMissesTheLastChange(t *testing.T) {
	t.Parallel()
	const watchers, changes = 20, 100
	_, h := servetest.Serve(t, leaseserver.Config{PollInterval: -1})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	l, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range watchers {
		wg.Go(func() {
			for version, state := uint64(0), lease.Held; state == lease.Held; {
				r, err := cl.GetAfter(context.WithoutCancel(t.Context()), "job", version, time.Minute)
				if !assert.NoError(t, err) || !assert.Greater(t, r.Version, version, "nothing is told twice") {
					return
				}
				version, state = r.Version, r.State
			}
		})
	}
	for range changes {
		_, err := cl.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: servetest.Long})
		require.NoError(t, err)
	}
	require.NoError(t, cl.Release(t.Context(), l.Claim))
	wg.Wait()
}
