package kubernetes_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/kubernetes"
	"github.com/pglatch/pglatch/leader/kubernetes/internal/apitest"
	"github.com/pglatch/pglatch/leader/leadertest"
)

// A node is a backend with a network that can be cut.
type node struct {
	*kubernetes.Backend
	proxy *faultproxy.Proxy
}

func harness(faults func(verb string) apitest.Fault) leadertest.Harness {
	return leadertest.Harness{
		TTL: 2 * time.Second,
		New: func(t *testing.T) func() driver.Backend {
			t.Helper()
			server := newServer(t)
			server.Inject(faults)
			config := server.Config()
			host, err := url.Parse(config.Host)
			require.NoError(t, err)
			return func() driver.Backend {
				proxy, err := faultproxy.New(t.Context(), host.Host)
				require.NoError(t, err)
				t.Cleanup(proxy.Close)
				through := server.Config()
				through.Host, err = proxy.URL(config.Host)
				require.NoError(t, err)
				return &node{kubernetes.NewBackend(newClient(t, through), namespace, name), proxy}
			}
		},
		Mistakes: map[string]func(*testing.T) driver.Backend{
			"no right to read": func(t *testing.T) driver.Backend { //nolint:thelper // it makes a backend
				server := newServer(t)
				server.Inject(forbidden(apitest.Get))
				return newBackend(t, server)
			},
			"no right to create": func(t *testing.T) driver.Backend { //nolint:thelper // it makes a backend
				server := newServer(t)
				server.Inject(forbidden(apitest.Create))
				return newBackend(t, server)
			},
		},
		Cut: func(_ *testing.T, b driver.Backend) func() {
			proxy := b.(*node).proxy
			proxy.Set(faultproxy.Hold)
			return func() { proxy.Set(faultproxy.Pass) }
		},
	}
}

func TestTheBackendConforms(t *testing.T) {
	t.Parallel()
	leadertest.Run(t, harness(nil))
}

func TestTheBackendConformsWhereWatchingIsForbidden(t *testing.T) {
	t.Parallel()
	leadertest.Run(t, harness(forbidden(apitest.Watch)))
}

func newElector(t *testing.T, server *apitest.Server, identity string, lease time.Duration) *leader.Elector {
	t.Helper()
	e, err := leader.New(leader.Config{Name: name, Backend: newBackend(t, server), Identity: identity, LeaseDuration: lease})
	require.NoError(t, err)
	return e
}

// Five pods are replaced one after the other, as a rollout does: each leads once, and
// none beside another.
func TestPodsLeadOneAfterTheOther(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	var leaders atomic.Int32
	var pods sync.WaitGroup
	var mu sync.Mutex
	var terms []uint64
	for i := range 5 {
		e := newElector(t, server, fmt.Sprintf("pod-%d", i), ttl)
		pods.Go(func() {
			ctx, stop := context.WithCancel(context.Background())
			assert.NoError(t, e.Run(ctx, func(ctx context.Context) error {
				assert.EqualValues(t, 1, leaders.Add(1))
				mu.Lock()
				terms = append(terms, leader.TermOfContext(ctx).N)
				mu.Unlock()
				stop()
				<-ctx.Done()
				assert.EqualValues(t, 0, leaders.Add(-1))
				return nil
			}))
		})
	}
	pods.Wait()
	require.Equal(t, []uint64{1, 2, 3, 4, 5}, terms)
	require.Empty(t, holder(server))
}

// An API that is down for longer than the lease costs leadership, and one that is back
// has a leader again.
func TestALeaderOutlivesNoOutage(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	e := newElector(t, server, "pod", 5*time.Second) // no pause of the machine ends it
	require.NoError(t, e.Start(t.Context()))
	defer func() { require.NoError(t, e.Shutdown(context.Background())) }()
	require.NoError(t, e.WaitForLeadership(within(t)))
	leading, first := e.Context(), e.Term()
	server.Inject(func(string) apitest.Fault { return apitest.Fault{Drop: true} })
	await.Receive(t, patience, leading.Done(), "it leads for ever")
	require.ErrorIs(t, context.Cause(leading), leader.ErrLost)
	server.Inject(nil)
	require.NoError(t, e.WaitForLeadership(within(t)))
	assert.Positive(t, e.Term().Compare(first))
}
