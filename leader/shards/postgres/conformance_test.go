package postgres_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

// A node is a backend with a network that can be cut.
type node struct {
	*postgres.Backend
	dsn   string
	proxy *faultproxy.Proxy
}

func newNode(tb testing.TB, dsn string) *node {
	tb.Helper()
	u, err := url.Parse(dsn)
	require.NoError(tb, err)
	proxy, err := faultproxy.New(tb.Context(), u.Host)
	require.NoError(tb, err)
	tb.Cleanup(proxy.Close)
	via, err := proxy.URL(dsn)
	require.NoError(tb, err)
	return &node{newBackend(tb, via, nil), dsn, proxy}
}

func TestTheBackendConforms(t *testing.T) {
	t.Parallel()
	shardstest.Run(t, shardstest.Harness{
		TTL: 10 * time.Second, // a quarter of it bounds a claim
		New: func(t *testing.T) func() driver.Backend {
			t.Helper()
			dsn := pgtest.DSN(t)
			return func() driver.Backend { return newNode(t, dsn) }
		},
		Kill: func(t *testing.T, b driver.Backend, s driver.Session) {
			t.Helper()
			newJudge(t, b.(*node).dsn).Terminate(postgres.PIDOf(s))
		},
		Cut: func(_ *testing.T, b driver.Backend) func() {
			proxy := b.(*node).proxy
			proxy.Set(faultproxy.Hold)
			return func() { proxy.Set(faultproxy.Pass) }
		},
	})
}
