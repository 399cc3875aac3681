package kubernetes_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/faultproxy"
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
