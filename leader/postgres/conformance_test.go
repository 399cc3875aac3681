package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/leader/postgres"
)

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
