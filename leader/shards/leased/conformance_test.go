package leased_test

import (
	"context"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/leased"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// harness is for groups on a store that all nodes share.
func harness(open func(t *testing.T) leased.Store) shardstest.Harness {
	return shardstest.Harness{
		TTL:  2 * time.Second,
		Many: 50, // a disk that others use syncs some times a second
		New: func(t *testing.T) func() driver.Backend {
			t.Helper()
			store := open(t)
			return func() driver.Backend { return newBackend(t, store) }
		},
	}
}

func openSQLite(tb testing.TB) lease.Store {
	tb.Helper()
	s, err := sqlite.Open(context.Background(), filepath.Join(tb.TempDir(), "leases.db"), sqlite.Config{})
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, s.Close()) })
	return s
}

func openPostgres(tb testing.TB) lease.Store {
	tb.Helper()
	s, err := postgres.New(postgres.Config{DSN: pgtest.DSN(tb)})
	require.NoError(tb, err)
	tb.Cleanup(s.Close)
	require.NoError(tb, s.Migrate(context.Background()))
	return s
}

func TestTheBackendConformsInMemory(t *testing.T) {
	t.Parallel()
	h := harness(func(*testing.T) leased.Store { return leasetest.NewStore() })
	h.TTL, h.Many = time.Second, 0
	shardstest.Run(t, h)
}

func TestTheBackendConformsOnSQLite(t *testing.T) {
	t.Parallel()
	shardstest.Run(t, harness(func(t *testing.T) leased.Store { return openSQLite(t) })) //nolint:thelper // it opens
}

func TestTheBackendConformsOnPostgres(t *testing.T) {
	t.Parallel()
	shardstest.Run(t, harness(func(t *testing.T) leased.Store { return openPostgres(t) })) //nolint:thelper // it opens
}

// A node is a backend with a network that can be cut.
type node struct {
	*leased.Backend
	proxy *faultproxy.Proxy
}

// serve starts a lock server.
func serve(tb testing.TB, config leaseserver.Config) *httptest.Server {
	tb.Helper()
	s, err := leaseserver.New(config)
	require.NoError(tb, err)
	server := httptest.NewServer(s.Handler())
	tb.Cleanup(server.Close)
	return server
}

// dial returns a client of the server, through a proxy of its own.
func dial(tb testing.TB, server *httptest.Server) (*leasehttp.Client, *faultproxy.Proxy) {
	tb.Helper()
	return dialWith(tb, server, "")
}

func dialWith(tb testing.TB, server *httptest.Server, token string) (*leasehttp.Client, *faultproxy.Proxy) {
	tb.Helper()
	address, err := url.Parse(server.URL)
	require.NoError(tb, err)
	proxy, err := faultproxy.New(context.Background(), address.Host)
	require.NoError(tb, err)
	tb.Cleanup(proxy.Close)
	through, err := proxy.URL(server.URL)
	require.NoError(tb, err)
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{through}, Token: token})
	require.NoError(tb, err)
	tb.Cleanup(client.Close)
	return client, proxy
}

func TestTheBackendConformsOnALockServer(t *testing.T) {
	t.Parallel()
	h := harness(nil)
	h.New = func(t *testing.T) func() driver.Backend {
		t.Helper()
		server := serve(t, leaseserver.Config{Store: openSQLite(t)})
		var mu sync.Mutex // the suite may make nodes from several goroutines
		return func() driver.Backend {
			mu.Lock()
			defer mu.Unlock()
			client, proxy := dial(t, server)
			return &node{newBackend(t, client), proxy}
		}
	}
	h.Cut = func(_ *testing.T, b driver.Backend) func() {
		proxy := b.(*node).proxy
		proxy.Set(faultproxy.Hold)
		return func() { proxy.Set(faultproxy.Pass) }
	}
	shardstest.Run(t, h)
}
