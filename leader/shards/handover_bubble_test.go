package shards_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

// gaps measures how long nobody works on a shard when it moves.
type gaps struct {
	mu    sync.Mutex
	ended map[string]time.Time
	all   []time.Duration
}

func (g *gaps) work(ctx context.Context, s shards.Shard) error {
	now := time.Now()
	g.mu.Lock()
	if ended, ok := g.ended[s.Name]; ok {
		g.all = append(g.all, now.Sub(ended))
		delete(g.ended, s.Name)
	}
	g.mu.Unlock()
	<-ctx.Done()
	g.mu.Lock()
	g.ended[s.Name] = time.Now()
	g.mu.Unlock()
	return nil
}

// sorted returns the gaps so far, the shortest first, and forgets them.
func (g *gaps) sorted() []time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.all
	g.all = nil
	slices.Sort(all)
	return all
}

// A handover is a group of nodes on a store each call of which takes a time.
type handover struct {
	gaps  gaps
	store *shardstest.Store
	nodes []*shards.Node
	stops []func()
}

func newHandover(tb testing.TB, nodes, count int, on func(*shardstest.Backend) driver.Backend) *handover {
	tb.Helper()
	h := &handover{gaps: gaps{ended: map[string]time.Time{}}, store: shardstest.NewStore()}
	for i := range nodes {
		// The clock that counts a suspension is not that of the bubble: a slow machine must not lose what the test does not take away.
		const lease = 10 * time.Minute
		node, err := shards.New(shards.Config{LeaseDuration: lease, LookInterval: 3 * time.Second, Name: "tenants", Backend: on(h.store.Backend()), Identity: fmt.Sprint(i), Count: count})
		require.NoError(tb, err)
		ctx, stop := context.WithCancel(tb.Context())
		done := make(chan error, 1)
		go func() { done <- node.Run(ctx, h.gaps.work) }()
		h.nodes = append(h.nodes, node)
		h.stops = append(h.stops, sync.OnceFunc(func() {
			stop()
			assert.NoError(tb, <-done)
		}))
	}
	return h
}

func (h *handover) stop() {
	for _, stop := range h.stops {
		stop()
	}
}

// A call of the backend takes a millisecond here, or a look thirty, as with ten thousand locks on a
// server; and CPU time nothing: what is measured is how many calls follow each other.
func TestAGracefulLeaveLeavesAShardAloneForAFewMilliseconds(t *testing.T) {
	t.Parallel()
	for _, look := range []time.Duration{0, 30 * time.Millisecond} {
		t.Run(fmt.Sprint("look ", look), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const n = 3_000
				h := newHandover(t, 3, n, func(b *shardstest.Backend) driver.Backend {
					b.SetDelay(time.Millisecond)
					return slowSight{b, look}
				})
				pass(5 * time.Second)
				require.Len(t, h.store.Owners(), n)
				h.stops[0]()
				pass(time.Second)
				gaps := h.gaps.sorted()
				require.InDelta(t, n/3, len(gaps), 1)
				p50, p99 := gaps[len(gaps)/2], gaps[len(gaps)*99/100]
				t.Logf("p50 %v, p99 %v, at most %v", p50, p99, gaps[len(gaps)-1])
				assert.LessOrEqual(t, p50, 5*time.Millisecond)
				assert.LessOrEqual(t, p99, 50*time.Millisecond)
				h.stop()
			})
		})
	}
}

// slowSight is a backend whose looks take longer.
type slowSight struct {
	*shardstest.Backend
	look time.Duration
}

type slowSightSession struct {
	driver.Session
	look time.Duration
}

func (b slowSight) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, self, ttl)
	return slowSightSession{s, b.look}, err
}

func (s slowSightSession) Passed(ctx context.Context, released []driver.Grant) (int, error) {
	return s.Session.(driver.Passer).Passed(ctx, released) //nolint:forcetypeassert // the memory's has it
}

func (s slowSightSession) Look(ctx context.Context, known uint64) (driver.View, error) {
	time.Sleep(s.look)
	return s.Session.Look(ctx, known)
}

// Others claim more slowly than the node that leaves gives up.
func TestWhoLeavesWaitsUntilOthersHaveClaimed(t *testing.T) {
	t.Parallel()
	for name, knows := range map[string]bool{"the session says what was claimed": true, "control": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const n = 3_000
				h := newHandover(t, 3, n, func(b *shardstest.Backend) driver.Backend {
					b.SetDelay(time.Millisecond)
					return slowClaims{b, knows}
				})
				pass(5 * time.Second)
				require.Len(t, h.store.Owners(), n)
				h.stops[0]()
				pass(3 * time.Second)
				gaps := h.gaps.sorted()
				require.InDelta(t, n/3, len(gaps), 1)
				p50, p99 := gaps[len(gaps)/2], gaps[len(gaps)*99/100]
				t.Logf("p50 %v, p99 %v, at most %v", p50, p99, gaps[len(gaps)-1])
				if knows {
					assert.LessOrEqual(t, p99, 25*time.Millisecond)
				} else {
					assert.GreaterOrEqual(t, p50, 30*time.Millisecond)
				}
				h.stop()
			})
		})
	}
}

// A fleet that stops as a whole: each node sees others, and none of them claims anything.
func TestNodesThatAllLeaveDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 6_000
		h := newHandover(t, 3, n, func(b *shardstest.Backend) driver.Backend { b.SetDelay(time.Millisecond); return b })
		pass(5 * time.Second)
		require.Len(t, h.store.Owners(), n)
		for _, stop := range h.stops {
			go stop()
		}
		pass(2 * time.Second)
		assert.Empty(t, h.store.Owners())
		pass(time.Minute) // else stop would wait for a mutex, and the bubble's time stand still
		h.stop()
	})
}

// slowClaims is a backend whose claims take longer the more they ask for.
type slowClaims struct {
	*shardstest.Backend
	knows bool
}

type slowClaimsSession struct{ driver.Session }

type knowingSession struct {
	slowClaimsSession
	driver.Passer
}

func (b slowClaims) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, self, ttl)
	if err != nil || !b.knows {
		return slowClaimsSession{s}, err
	}
	return knowingSession{slowClaimsSession{s}, s.(driver.Passer)}, nil //nolint:forcetypeassert // the memory's is one
}

func (s slowClaimsSession) Claim(ctx context.Context, names []string) ([]driver.Grant, error) {
	time.Sleep(time.Duration(len(names)) * 400 * time.Microsecond)
	return s.Session.Claim(ctx, names)
}

// The leaver stays until it was replaced, each time. The time is that of this machine: see the bubble for what
// is promised.
func BenchmarkAGracefulLeave(b *testing.B) {
	const n = 10_000
	for range b.N {
		h := newHandover(b, 3, n, func(s *shardstest.Backend) driver.Backend {
			s.SetDelay(time.Millisecond)
			return s
		})
		settled := func() bool {
			owned := 0
			for _, node := range h.nodes {
				owned += node.Stats().Owned
			}
			return owned == n
		}
		await := func() {
			for !settled() {
				time.Sleep(time.Millisecond)
			}
		}
		began := time.Now()
		await()
		b.ReportMetric(time.Since(began).Seconds(), "s-to-settle")
		h.stops[0]()
		await()
		gaps := h.gaps.sorted()
		b.ReportMetric(float64(gaps[len(gaps)/2])/1e6, "p50-ms")
		b.ReportMetric(float64(gaps[len(gaps)*99/100])/1e6, "p99-ms")
		b.ReportMetric(float64(gaps[len(gaps)-1])/1e6, "max-ms")
		h.stop()
	}
}
