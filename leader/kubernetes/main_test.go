package kubernetes_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/kubernetes"
	"github.com/pglatch/pglatch/leader/kubernetes/internal/apitest"
	"github.com/pglatch/pglatch/leader/leadertest"
)

func TestMain(m *testing.M) { leak.Main(m) }

const (
	namespace = "default"
	name      = "election"
	ttl       = time.Minute // long: what ends in a test does not end by it
	patience  = await.Soon
)

func newServer(t *testing.T) *apitest.Server {
	t.Helper()
	server := apitest.New()
	t.Cleanup(server.Close)
	return server
}

func newClient(t *testing.T, config *rest.Config) clientset.Interface {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	c, err := clientset.NewForConfigAndClient(config, client)
	require.NoError(t, err)
	return c
}

func newBackend(t *testing.T, server *apitest.Server) *kubernetes.Backend {
	t.Helper()
	b := kubernetes.NewBackend(newClient(t, server.Config()), namespace, name)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// within is a ctx with a bound that only a hanging test reaches.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func lead(t *testing.T, b *kubernetes.Backend, identity string) {
	t.Helper()
	won, err := b.TryAcquire(within(t), identity, ttl)
	require.NoError(t, err)
	require.True(t, won)
}

func refuse(t *testing.T, b *kubernetes.Backend, identity string) {
	t.Helper()
	won, err := b.TryAcquire(within(t), identity, ttl)
	require.NoError(t, err)
	require.False(t, won)
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	return await.Receive(t, patience, from)
}

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
