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
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// A node is a backend as the suite needs it: with the store behind it and, if there is
// one, a network that can be cut.
type node struct {
	*leased.Backend
	behind lease.Store
	proxy  *faultproxy.Proxy
}

// harness is for elections on a store that all nodes share.
func harness(open func(t *testing.T) lease.Store) leadertest.Harness {
	return leadertest.Harness{
		TTL: time.Second,
		New: func(t *testing.T) func() driver.Backend {
			t.Helper()
			store := open(t)
			return func() driver.Backend { return &node{Backend: newBackend(t, store), behind: store} }
		},
		Mistakes: map[string]func(*testing.T) driver.Backend{
			"a token that the lock server refuses": func(t *testing.T) driver.Backend {
				t.Helper()
				s, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore(), Tokens: []leaseserver.Token{{Secret: "0123456789abcdef"}}})
				require.NoError(t, err)
				server := httptest.NewServer(s.Handler())
				t.Cleanup(server.Close)
				client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{server.URL}})
				require.NoError(t, err)
				t.Cleanup(client.Close)
				return newBackend(t, client)
			},
			"a store that is not set up": func(t *testing.T) driver.Backend {
				t.Helper()
				s, err := postgres.New(postgres.Config{DSN: pgtest.DSN(t)})
				require.NoError(t, err)
				t.Cleanup(s.Close)
				return newBackend(t, s)
			},
		},
		Kill: func(t *testing.T, b driver.Backend) {
			t.Helper()
			takeAway(t, b.(*node).behind)
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

func TestTheBackendConformsInMemory(t *testing.T) {
	t.Parallel()
	leadertest.Run(t, harness(func(*testing.T) lease.Store { return leasetest.NewStore() }))
}

func TestTheBackendConformsOnSQLite(t *testing.T) {
	t.Parallel()
	leadertest.Run(t, harness(func(t *testing.T) lease.Store { return openSQLite(t) })) //nolint:thelper // it opens
}

func TestTheBackendConformsOnPostgres(t *testing.T) {
	t.Parallel()
	leadertest.Run(t, harness(func(t *testing.T) lease.Store {
		t.Helper()
		s, err := postgres.New(postgres.Config{DSN: pgtest.DSN(t)})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		require.NoError(t, s.Migrate(t.Context()))
		return s
	}))
}

// serve starts a lock server on SQLite.
func serve(tb testing.TB) (server *httptest.Server, behind lease.Store) {
	tb.Helper()
	behind = openSQLite(tb)
	s, err := leaseserver.New(leaseserver.Config{Store: behind})
	require.NoError(tb, err)
	server = httptest.NewServer(s.Handler())
	tb.Cleanup(server.Close)
	return server, behind
}

// dial returns a client of the server, through a proxy of its own.
func dial(tb testing.TB, server *httptest.Server) (*leasehttp.Client, *faultproxy.Proxy) {
	tb.Helper()
	address, err := url.Parse(server.URL)
	require.NoError(tb, err)
	proxy, err := faultproxy.New(tb.Context(), address.Host)
	require.NoError(tb, err)
	tb.Cleanup(proxy.Close)
	through, err := proxy.URL(server.URL)
	require.NoError(tb, err)
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{through}})
	require.NoError(tb, err)
	tb.Cleanup(client.Close)
	return client, proxy
}

func TestTheBackendConformsOnALockServer(t *testing.T) {
	t.Parallel()
	h := harness(nil)
	h.WaitSpendsTerms = true
	h.New = func(t *testing.T) func() driver.Backend {
		t.Helper()
		server, behind := serve(t)
		var mu sync.Mutex // the suite may make nodes from several goroutines
		return func() driver.Backend {
			mu.Lock()
			defer mu.Unlock()
			client, proxy := dial(t, server)
			return &node{newBackend(t, client), behind, proxy}
		}
	}
	h.Cut = func(_ *testing.T, b driver.Backend) func() {
		proxy := b.(*node).proxy
		proxy.Set(faultproxy.Hold)
		return func() { proxy.Set(faultproxy.Pass) }
	}
	leadertest.Run(t, h)
}
