package prometheus_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	observe "github.com/pglatch/pglatch/observe/prometheus"
	"github.com/pglatch/pglatch/turns"
)

func TestDatabasesOfOneProcessAreToldApartByALabel(t *testing.T) {
	t.Parallel()
	registry := prom.NewPedanticRegistry()
	shop, audit := observe.New(), observe.New()
	require.NoError(t, registry.Register(shop.Elections()))
	for database, metrics := range map[string]*observe.Metrics{"db-1:5432/shop": shop, "db-2:5432/audit": audit} {
		wrapped := prom.WrapRegistererWith(prom.Labels{"database": database}, registry)
		require.NoError(t, wrapped.Register(metrics.ExceptElections()))
		metrics.Turns("chat").Ended(turns.TurnData{Committed: true})
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	databases := map[string]bool{}
	for _, f := range families {
		if f.GetName() != "pglatch_turns_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "database" {
					databases[l.GetValue()] = true
				}
			}
		}
	}
	assert.Equal(t, map[string]bool{"db-1:5432/shop": true, "db-2:5432/audit": true}, databases)

	whole := observe.New()
	require.Error(t, prom.WrapRegistererWith(prom.Labels{"database": "x"}, prom.NewRegistry()).Register(whole), "control: elections have the label already")
	parts := testutil.CollectAndCount(whole.Elections()) + testutil.CollectAndCount(whole.ExceptElections())
	assert.Equal(t, testutil.CollectAndCount(whole), parts, "the two parts are the whole")
}

func TestTheNamesOfMetricsAreFrozen(t *testing.T) {
	t.Parallel()
	frozen.Check(t, "metrics", frozen.Metrics(t, observe.New()))
}

// What the Tracer adds to a cycle on a server in memory, and what a scrape of many locks takes.
func BenchmarkCycle(b *testing.B) {
	for name, tracer := range map[string]advisory.Tracer{"without": {}, "with": observe.New().Tracer()} {
		b.Run(name, func(b *testing.B) {
			l, err := advisorytest.NewServer().Open(advisory.Config{Tracer: tracer})
			require.NoError(b, err)
			defer l.Close()
			for i := 0; b.Loop(); i++ {
				lock, err := l.Acquire(context.Background(), orders.ID(int64(i%100)))
				require.NoError(b, err)
				_ = lock.Release()
			}
		})
	}
}

func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{0, 1_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			registry, metrics := prom.NewRegistry(), observe.New()
			registry.MustRegister(metrics)
			l, err := advisorytest.NewServer().Open(advisory.Config{Tracer: metrics.Tracer(), LocksPerConn: 100_000, MaxLocks: 100_000})
			require.NoError(b, err)
			defer l.Close()
			for i := range n {
				_, err := l.Acquire(context.Background(), orders.ID(int64(i)))
				require.NoError(b, err)
			}
			for b.Loop() {
				_, err := registry.Gather()
				require.NoError(b, err)
			}
		})
	}
}

func TestRequestsForLeasesAreCountedByTheLockServersResults(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		store := s.metrics.Store(leasetest.NewStore())
		request := lease.AcquireRequest{Name: "report", Holder: "a", TTL: time.Second}
		l, err := store.Acquire(s.Context(), request)
		require.NoError(s, err)
		_, err = store.Acquire(s.Context(), lease.AcquireRequest{Name: "report", Holder: "b", TTL: time.Second})
		require.ErrorIs(s, err, lease.ErrHeld)
		_, err = store.Get(s.Context(), "report")
		require.NoError(s, err)
		for _, err := range store.List(s.Context(), lease.ListRequest{}) {
			require.NoError(s, err)
		}
		bubble.Sleep(2 * time.Second)
		_, err = store.Renew(s.Context(), lease.RenewRequest{Claim: l.Claim, TTL: time.Second})
		require.ErrorIs(s, err, lease.ErrExpired)
		require.ErrorIs(s, store.Release(s.Context(), l.Claim), lease.ErrExpired)
		_, err = store.Sweep(s.Context(), lease.SweepRequest{})
		require.NoError(s, err)
		s.expect("pglatch_lease_losses_total", " 1")
		s.expect("pglatch_lease_requests_total",
			`{op="acquire",result="success"} 1`, `{op="acquire",result="held"} 1`, `{op="get",result="success"} 1`, `{op="list",result="success"} 1`,
			`{op="renew",result="refused"} 1`, `{op="release",result="refused"} 1`, `{op="sweep",result="success"} 1`)
	})
}

// patient can wait, as a lock server's client.
type patient struct{ *leasetest.Store }

func (p patient) AcquireWait(ctx context.Context, r lease.AcquireRequest, _ time.Duration) (lease.Lease, error) {
	return p.Acquire(ctx, r)
}

func TestAClientOfALockServerIsCountedToo(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		_, err := s.metrics.Client(patient{leasetest.NewStore()}).AcquireWait(s.Context(), lease.AcquireRequest{Name: "report", Holder: "a", TTL: time.Second}, time.Second)
		require.NoError(s, err)
		s.expect("pglatch_lease_requests_total", `{op="acquire_wait",result="success"} 1`)
	})
}

func TestTurnsAreCountedByTheirResult(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		observer := s.metrics.Turns("chat")
		assert.Equal(s, 3, testutil.CollectAndCount(s.metrics, "pglatch_turns_total"), "before the first, too")
		observer.Ended(turns.TurnData{Messages: 3, Took: time.Second, Committed: true})
		observer.Ended(turns.TurnData{Messages: 3, Took: time.Second, Err: errors.New("no model")})
		observer.Ended(turns.TurnData{Messages: 3, Took: time.Second, Err: &turns.StaleError{}})
		s.expect("pglatch_turns_total", `{mailbox="chat",result="committed"} 1`, `{mailbox="chat",result="failed"} 1`, `{mailbox="chat",result="stale"} 1`)
		s.expect("pglatch_turn_messages_total", `{mailbox="chat"} 3`)
		assert.Equal(s, 1, testutil.CollectAndCount(s.metrics, "pglatch_turn_seconds"))
	})
}

// A box is a mailbox whose Stats a test sets.
type box struct {
	stats turns.Stats
	down  atomic.Bool
}

func (b *box) Name() string { return "chat" }

func (b *box) Stats(context.Context) (turns.Stats, error) {
	if b.down.Load() {
		return turns.Stats{}, errors.New("no server")
	}
	return b.stats, nil
}

func TestAMailboxIsLookedAtAtIntervals(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		b := &box{stats: turns.Stats{Ready: 4, Running: 2, Stopped: 1, Dead: 3, Nodes: 2, OldestReady: 1500 * time.Millisecond}}
		stop, other := s.metrics.WatchMailbox(b, 0), s.metrics.WatchMailbox(b, time.Minute)
		synctest.Wait()
		check := func(up string) {
			s.Helper()
			s.expect("pglatch_mailbox_entities", `{mailbox="chat",state="ready"} 4`, `{mailbox="chat",state="running"} 2`, `{mailbox="chat",state="stopped"} 1`)
			s.expect("pglatch_mailbox_dead_letters", `{mailbox="chat"} 3`)
			s.expect("pglatch_mailbox_nodes", `{mailbox="chat"} 2`)
			s.expect("pglatch_mailbox_oldest_ready_seconds", `{mailbox="chat"} 1.5`)
			s.expect("pglatch_mailbox_up", up)
		}
		check(`{mailbox="chat"} 1`)
		other()
		b.down.Store(true)
		bubble.Sleep(16 * time.Second)
		synctest.Wait()
		assert.Equal(s, 1, testutil.CollectAndCount(s.metrics, "pglatch_mailbox_up"))
		s.expect("pglatch_mailbox_up")
		s.expect("pglatch_mailbox_nodes", `{mailbox="chat"} 2`)
		b.down.Store(false)
		bubble.Sleep(16 * time.Second)
		synctest.Wait()
		check(`{mailbox="chat"} 1`)
		stop()
		stop()
		assert.Zero(s, testutil.CollectAndCount(s.metrics, "pglatch_mailbox_up"), "nobody watches it")
	})
}
