package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var key = namespace.Pair(1, 100)

// ttl is long: what ends in a test does not end by it.
const ttl = time.Minute

const patience = await.Soon

// newBackend returns a backend on the database, which makes its table; change may
// be nil.
func newBackend(tb testing.TB, dsn string, change func(*postgres.Config)) *postgres.Backend {
	tb.Helper()
	config := postgres.Config{DSN: dsn, Key: key, CreateTable: true}
	if change != nil {
		change(&config)
	}
	b, err := postgres.New(config)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, b.Close()) })
	return b
}

func noTerms(c *postgres.Config) { c.NoTerms = true }

// lead makes the backend the leader and returns the context of its term.
func lead(tb testing.TB, b *postgres.Backend, identity string) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	won, err := b.TryAcquire(ctx, identity, ttl)
	require.NoError(tb, err)
	require.True(tb, won)
	return b.Bind(tb.Context())
}

// refused makes one attempt that somebody else's leadership refuses.
func refused(tb testing.TB, b *postgres.Backend, identity string) {
	tb.Helper()
	won, err := b.TryAcquire(tb.Context(), identity, ttl)
	require.NoError(tb, err)
	require.False(tb, won)
}

func release(tb testing.TB, b *postgres.Backend, identity string) {
	tb.Helper()
	require.NoError(tb, b.Release(tb.Context(), identity))
}

func wait(tb testing.TB, b *postgres.Backend) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	require.NoError(tb, b.Wait(ctx))
}

// waitLost waits until the backend knows that its leadership is gone.
func waitLost(tb testing.TB, b *postgres.Backend) {
	tb.Helper()
	await.Receive(tb, patience, b.Lost(), "the loss was not noticed")
}

// A judge is an ordinary connection, which says what the server knows.
type judge struct{ *dbtest.Database }

func newJudge(tb testing.TB, dsn string) judge {
	tb.Helper()
	return judge{dbtest.Open(tb, dsn)}
}

// here selects the advisory locks of this database.
const here = ` FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// holder is the pid that holds the election lock, or 0.
func (j judge) holder() uint32 {
	j.TB().Helper()
	return dbtest.Ask[uint32](j, `SELECT coalesce(min(pid), 0)`+here+` AND classid = 1 AND objid = 100 AND objsubid = 2 AND granted`)
}

// locks counts all advisory locks, granted or waited for.
func (j judge) locks() int {
	j.TB().Helper()
	return dbtest.Ask[int](j, `SELECT count(*)`+here)
}

// queued blocks until somebody waits for an advisory lock.
func (j judge) queued() {
	j.TB().Helper()
	j.Until(func() bool { return dbtest.Ask[int](j, `SELECT count(*)`+here+` AND NOT granted`) > 0 })
}

func pidOf(tb testing.TB, tx pgx.Tx) uint32 {
	tb.Helper()
	return tx.Conn().PgConn().PID()
}

// A node is a backend as the suite needs it: with its server and a network that
// can be cut.
type node struct {
	*postgres.Backend
	dsn   string
	proxy *faultproxy.Proxy
}

// renamed stands for election with another identity than its caller's.
type renamed struct {
	*postgres.Backend
	identity string
}

func (r renamed) TryAcquire(ctx context.Context, _ string, ttl time.Duration) (bool, error) {
	return r.Backend.TryAcquire(ctx, r.identity, ttl)
}

// toDatabase connects to another database.
func toDatabase(name string) postgres.ConnectFunc {
	return func(ctx context.Context, c *pgx.ConnConfig) (*pgx.Conn, error) {
		c.Database = name
		return pgx.ConnectConfig(ctx, c)
	}
}

func harness(change func(*postgres.Config)) leadertest.Harness {
	return leadertest.Harness{
		TTL: time.Second,
		New: func(t *testing.T) func() driver.Backend {
			t.Helper()
			dsn := pgtest.DSN(t)
			var mu sync.Mutex // the suite may make nodes from several goroutines
			return func() driver.Backend {
				mu.Lock()
				defer mu.Unlock()
				proxy, _, through := throughProxy(t, dsn)
				return &node{newBackend(t, dsn, func(c *postgres.Config) { through(c); change(c) }), dsn, proxy}
			}
		},
		Kill: func(t *testing.T, b driver.Backend) {
			t.Helper()
			j := newJudge(t, b.(*node).dsn)
			if pid := j.holder(); pid != 0 {
				j.Terminate(pid)
			}
		},
		Mistakes: map[string]func(*testing.T) driver.Backend{
			"no such database": func(t *testing.T) driver.Backend {
				t.Helper()
				return newBackend(t, pgtest.DSN(t), func(c *postgres.Config) {
					change(c)
					c.Connect = toDatabase("pglatch_nowhere")
				})
			},
			"an identity that cannot be": func(t *testing.T) driver.Backend {
				t.Helper()
				return renamed{newBackend(t, pgtest.DSN(t), change), "a\x00b"}
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
	leadertest.Run(t, harness(func(*postgres.Config) {}))
}

func TestTheBackendConformsWithoutTerms(t *testing.T) {
	t.Parallel()
	leadertest.Run(t, harness(noTerms))
}

func TestAnElectorRunsOnTheBackend(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	judge.table()
	newElector := func() *leader.Elector {
		e, err := leader.New(leader.Config{Name: "test", Backend: newBackend(t, dsn, nil), LeaseDuration: ttl})
		require.NoError(t, err)
		return e
	}
	first, second := newElector(), newElector()
	require.NoError(t, first.Start(t.Context()))
	require.NoError(t, first.WaitForLeadership(t.Context()))
	require.NoError(t, second.Start(t.Context()))
	judge.queued()
	term := first.Context()
	require.NoError(t, postgres.InTx(term, judge.Pool, write))
	start := time.Now()
	require.NoError(t, first.Shutdown(context.Background()))
	require.NoError(t, second.WaitForLeadership(t.Context()))
	t.Logf("hand-over in %v", time.Since(start))
	require.ErrorIs(t, postgres.InTx(context.WithoutCancel(term), judge.Pool, write), leader.ErrNotLeader)
	require.NoError(t, postgres.InTx(second.Context(), judge.Pool, write))
	require.NoError(t, second.Shutdown(context.Background()))
	require.Equal(t, 2, judge.written())
	require.Zero(t, judge.locks())
}
