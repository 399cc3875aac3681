package leasehttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A direct transport calls a server without a network, as a bubble needs it.
type direct struct {
	handler http.Handler
	fault   func(r *http.Request, serve func() *http.Response) (*http.Response, error) // nil = none

	mu   sync.Mutex
	sent map[string]int // by the last part of the path
}

func (d *direct) RoundTrip(r *http.Request) (*http.Response, error) {
	serve := func() *http.Response {
		w := httptest.NewRecorder()
		r := r.Clone(r.Context())
		r.RemoteAddr, r.Host, r.RequestURI = "127.0.0.1:1", "localhost", r.URL.RequestURI()
		d.handler.ServeHTTP(w, r)
		return w.Result()
	}
	d.mu.Lock()
	d.sent[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]]++
	fault := d.fault
	d.mu.Unlock()
	if fault != nil {
		return fault(r, serve)
	}
	return serve(), nil
}

func (d *direct) breaks(fault func(r *http.Request, serve func() *http.Response) (*http.Response, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault, d.sent = fault, make(map[string]int)
}

func (d *direct) requests() (alone, together int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sent["renew"], d.sent["batch"]
}

// A flock is leases of one client, with their heartbeats.
type flock struct {
	*direct
	server *leaseserver.Server
	store  *leasetest.Store
	client *leasehttp.Client
	leases []*leasehttp.Lease
	works  []context.Context
}

// flockTTL is long, because the deadline of a lease is on the clock of the machine, too, which no bubble simulates.
const flockTTL = time.Minute

// keep keeps n leases, acquired over the time of one interval.
func keep(t *testing.T, n int, c leaseserver.Config) *flock {
	t.Helper()
	f := &flock{store: leasetest.NewStore()}
	c.Store, c.PollInterval = f.store, -1
	var err error
	f.server, err = leaseserver.New(c)
	require.NoError(t, err)
	f.direct = &direct{handler: f.server.Handler(), sent: make(map[string]int)}
	token := ""
	if len(c.Tokens) > 0 {
		token = c.Tokens[0].Secret
	}
	f.client, err = leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://localhost"}, HTTPClient: &http.Client{Transport: f.direct}, TTL: flockTTL, Token: token})
	require.NoError(t, err)
	for i := range n {
		l := acquireWithRetry(t, f.client, fmt.Sprintf("jobs/%d", i), "a", leasehttp.AcquireOptions{})
		work, _ := f.client.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{})
		f.leases, f.works = append(f.leases, l), append(f.works, work)
		bubble.Sleep(flockTTL / 3 / time.Duration(n))
	}
	f.breaks(nil)
	return f
}

// lost are the leases whose work has ended.
func (f *flock) lost() []int {
	var lost []int
	for i, work := range f.works {
		if work.Err() != nil {
			lost = append(lost, i)
		}
	}
	return lost
}

func TestOneHeartbeatKeepsAllLeasesOfAClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := keep(t, 200, leaseserver.Config{})
		defer f.client.Close()
		const intervals = 24
		bubble.Sleep(intervals * flockTTL / 3)
		alone, together := f.requests()
		assert.LessOrEqual(t, alone+together, 5*intervals, "200 renewals in an interval, and %d alone", alone)
		assert.Empty(t, f.lost())
		for _, l := range f.leases {
			record := recordOf(t, f.store, l.Claim().Name)
			assert.GreaterOrEqual(t, record.Version, uint64(intervals/2), "each is renewed in its time")
			assert.LessOrEqual(t, record.Version, uint64(2*intervals), "and not much oftener")
		}
	})
}

// What becomes of one of many is nothing to the others.
func TestALeaseThatIsLostAmongManyIsLostAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := keep(t, 50, leaseserver.Config{})
		defer f.client.Close()
		require.NoError(t, f.store.Release(t.Context(), f.leases[7].Claim()))
		bubble.Sleep(10 * flockTTL)
		assert.Equal(t, []int{7}, f.lost())
		require.ErrorIs(t, context.Cause(f.works[7]), lease.ErrStale)
	})
}

func TestALeaseThatMayNotBeRenewedAmongManyIsLostAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const secret = "0123456789abcdef"
		f := keep(t, 50, leaseserver.Config{Tokens: []leaseserver.Token{{Secret: secret}}})
		defer f.client.Close()
		require.NoError(t, f.server.SetTokens([]leaseserver.Token{{Secret: secret, Right: leaseserver.Hold, Prefix: "jobs/1"}}))
		bubble.Sleep(10 * flockTTL)
		alone, together := f.requests()
		assert.Less(t, alone+together, 40*20, "a lease that is refused until it ends has some ten renewals")
		for i, work := range f.works {
			allowed := i == 1 || i/10 == 1
			assert.Equal(t, allowed, work.Err() == nil, "%d: %v", i, context.Cause(work))
		}
	})
}

func TestNoLeaseIsLostWithAnAnswerToMany(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(r *http.Request, serve func() *http.Response) (*http.Response, error){
		"the server dies when it has renewed them": func(_ *http.Request, serve func() *http.Response) (*http.Response, error) {
			serve()
			return nil, errLostAnswer
		},
		"the server dies before": func(*http.Request, func() *http.Response) (*http.Response, error) { return nil, errLostAnswer },
		"the server is silent": func(r *http.Request, _ func() *http.Response) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := keep(t, 50, leaseserver.Config{})
				defer f.client.Close()
				var broken atomic.Bool
				f.breaks(func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
					if isBatch(r) && broken.CompareAndSwap(false, true) {
						return fault(r, serve)
					}
					return serve(), nil
				})
				bubble.Sleep(10 * flockTTL)
				assert.True(t, broken.Load())
				assert.Empty(t, f.lost())
			})
		})
	}
}

// A name that makes the answer to many wait, such as for a row that somebody keeps, costs
// the others one attempt.
func TestALeaseThatHoldsUpManyIsLostAlone(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(r *http.Request) (*http.Response, error){
		"silence": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		},
		"no connection": func(*http.Request) (*http.Response, error) { return nil, errLostAnswer },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := keep(t, 50, leaseserver.Config{})
				defer f.client.Close()
				f.breaks(func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
					body, err := r.GetBody()
					require.NoError(t, err)
					data, err := io.ReadAll(body)
					require.NoError(t, err)
					if strings.Contains(string(data), `"jobs/7"`) || strings.Contains(r.URL.Path, "/jobs/7/") {
						return fault(r)
					}
					return serve(), nil
				})
				bubble.Sleep(10 * flockTTL)
				assert.Equal(t, []int{7}, f.lost())
			})
		})
	}
}

// However late the answer to many comes, each lease is trusted from before they were sent.
func TestALeaseIsTrustedFromBeforeManyWereSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := keep(t, 50, leaseserver.Config{})
		defer f.client.Close()
		const late = 2 * time.Second
		f.breaks(func(_ *http.Request, serve func() *http.Response) (*http.Response, error) {
			bubble.Sleep(late / 2)
			response := serve()
			bubble.Sleep(late / 2)
			return response, nil
		})
		for range 100 {
			bubble.Sleep(flockTTL / 30)
			for _, l := range f.leases {
				record := recordOf(t, f.store, l.Claim().Name)
				require.LessOrEqual(t, l.Remaining(), record.Remaining-late/2+time.Millisecond)
			}
		}
		assert.Empty(t, f.lost())
	})
}

type acquirer interface {
	Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error)
}

// held acquires leases with long names, and returns requests to renew them.
func held(t *testing.T, store acquirer, n int) []lease.RenewRequest {
	t.Helper()
	var all []lease.RenewRequest
	for i := range n {
		l := acquire(t, store, servetest.Ask(fmt.Sprintf("%0300d", i), "a"))
		all = append(all, lease.RenewRequest{Claim: l.Claim, TTL: 2 * servetest.Long})
	}
	return all
}

func requireRenewed(t *testing.T, cl *leasehttp.Client, all []lease.RenewRequest) {
	t.Helper()
	results, err := cl.RenewAll(t.Context(), all)
	require.NoError(t, err)
	require.Len(t, results, len(all))
	for i, r := range results {
		require.NoError(t, r.Err)
		require.Equal(t, all[i].Claim, r.Lease.Claim)
		require.Greater(t, r.Lease.Remaining, servetest.Long)
	}
}

func TestManyRenewalsGoInFewRequestsThatTheServerTakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{})
		all := held(t, f.store, 600)
		f.breaks(nil)
		requireRenewed(t, f.client, all)
		assert.Equal(t, map[string]int{"batch": 2}, f.sent, "600 of some 450 bytes, in bodies of 192 KiB")
	})
}
