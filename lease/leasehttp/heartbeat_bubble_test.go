package leasehttp_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestTheWorkEndsBeforeAnotherCanHaveTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := keep(t, 1, leaseserver.Config{})
		defer f.client.Close()
		l := f.leases[0]
		work, errs := f.client.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{})
		f.breaks(func(*http.Request, func() *http.Response) (*http.Response, error) { return nil, errLostAnswer })
		<-work.Done()
		record, err := f.store.Get(t.Context(), l.Claim().Name)
		require.NoError(t, err)
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
			l, err := f.client.AcquireWithRetry(t.Context(), "job", "a", leasehttp.AcquireOptions{})
			require.NoError(t, err)
			if options.Interval == 0 {
				time.Sleep(flockTTL * 3 / 4)
			}
			work, _ := f.client.StartHeartbeat(t.Context(), l, options)
			time.Sleep(10 * flockTTL)
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
		_, err := f.store.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: wait})
		require.NoError(t, err)
		began := time.Now()
		l, err := f.client.AcquireWithRetry(t.Context(), "job", "b", leasehttp.AcquireOptions{TTL: time.Minute})
		require.NoError(t, err)
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
	l, err := client.AcquireWithRetry(t.Context(), "job", "a", leasehttp.AcquireOptions{})
	require.NoError(t, err)
	d.breaks(func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
		if r.URL.Host != first {
			return serve(), nil
		}
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	})
	work, _ = client.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{})
	before, err := store.Get(t.Context(), "job")
	require.NoError(t, err)
	return client, work, func() uint64 {
		now, err := store.Get(t.Context(), "job")
		require.NoError(t, err)
		return now.Version - before.Version
	}
}

func TestAHeartbeatLeavesASilentServerBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, work, renewals := heartbeatBeside(t, "second")
		defer client.Close()
		for renewals() < 2 && work.Err() == nil {
			time.Sleep(100 * time.Millisecond)
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
