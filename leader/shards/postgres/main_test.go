package postgres_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/internal/test/frozen/tables"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var tenants = namespace.Must(7, "tenant")

// ttl is long: what ends in a test does not end by it.
const ttl = time.Minute

const patience = await.Soon

// newBackend returns a backend on the database, which makes its tables; change may be nil.
func newBackend(tb testing.TB, dsn string, change func(*postgres.Config)) *postgres.Backend {
	tb.Helper()
	config := postgres.Config{DSN: dsn, Namespace: tenants, CreateTable: true}
	if change != nil {
		change(&config)
	}
	b, err := postgres.New(config)
	require.NoError(tb, err)
	return b
}

func member(identity string) driver.Member {
	return driver.Member{Identity: identity, Weight: 100, List: 7}
}

// open opens a session that lasts for the test.
func open(tb testing.TB, b driver.Backend, identity string) driver.Session {
	tb.Helper()
	s, err := b.Open(tb.Context(), member(identity), ttl)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// claim returns the terms of what it got.
func claim(tb testing.TB, s driver.Session, names ...string) map[string]driver.Term {
	tb.Helper()
	grants, err := s.Claim(tb.Context(), names)
	require.NoError(tb, err)
	got := map[string]driver.Term{}
	for _, g := range grants {
		got[g.Name] = g.Term
	}
	return got
}

func release(tb testing.TB, s driver.Session, names ...string) {
	tb.Helper()
	require.NoError(tb, s.Release(tb.Context(), names))
}

// A judge is an ordinary connection, which says what the server knows.
type judge struct{ *dbtest.Database }

func newJudge(tb testing.TB, dsn string) judge {
	tb.Helper()
	return judge{dbtest.Open(tb, dsn)}
}

// locks counts the advisory locks of this database that a session holds alone.
func (j judge) locks() int {
	j.TB().Helper()
	return dbtest.Ask[int](j, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

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

func TestTheTablesOfShardsAreFrozen(t *testing.T) {
	t.Parallel()
	frozen.Check(t, "tables", tables.Of(t, postgres.Schema("")))
}
