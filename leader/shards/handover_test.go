package shards_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
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
	stops []func()
}

func newHandover(t *testing.T, nodes, count int, lookInterval time.Duration, on func(*shardstest.Backend) driver.Backend) *handover {
	t.Helper()
	h := &handover{gaps: gaps{ended: map[string]time.Time{}}, store: shardstest.NewStore()}
	for i := range nodes {
		// The clock that counts a suspension is not that of the bubble: a slow machine must not lose what the test does not take away.
		const lease = 10 * time.Minute
		node, err := shards.New(shards.Config{LeaseDuration: lease, LookInterval: cmp.Or(lookInterval, 3*time.Second), Name: "tenants", Backend: on(h.store.Backend()), Identity: fmt.Sprint(i), Count: count})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- node.Run(ctx, h.gaps.work) }()
		h.stops = append(h.stops, sync.OnceFunc(func() {
			stop()
			assert.NoError(t, <-done)
		}))
	}
	return h
}

func (h *handover) stop() {
	for _, stop := range h.stops {
		stop()
	}
}

// A leave is how long calls of the backend take while a node leaves: all a millisecond, and a look or the claim of a shard
// more. CPU time takes nothing: what is measured is how many calls follow each other.
type leave struct {
	look, claim, lookInterval time.Duration
}

func TestAGracefulLeaveLeavesAShardAloneForAFewMilliseconds(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]leave{
		"quick":                        {},
		"looks at ten thousand locks":  {look: 30 * time.Millisecond},
		"many looks during the leave":  {look: 30 * time.Millisecond, lookInterval: 300 * time.Millisecond},
		"claims that take longer":      {claim: 400 * time.Microsecond},
		"the control, all at one time": {claim: 400 * time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const n = 3_000
				var backends []*shardstest.Backend
				h := newHandover(t, 3, n, l.lookInterval, func(b *shardstest.Backend) driver.Backend {
					b.SetDelay(time.Millisecond)
					backends = append(backends, b)
					return slow{b, l}
				})
				pass(5 * time.Second)
				require.Len(t, h.store.Owners(), n)
				if control := name == "the control, all at one time"; control {
					for backends[0].Kill(0) {
					}
					pass(3 * time.Second)
					gaps := h.gaps.sorted()
					assert.GreaterOrEqual(t, gaps[len(gaps)/2], 50*time.Millisecond)
				} else {
					h.stops[0]()
					pass(time.Second)
					gaps := h.gaps.sorted()
					require.InDelta(t, n/3, len(gaps), 1)
					p50, p99 := gaps[len(gaps)/2], gaps[len(gaps)*99/100]
					t.Logf("p50 %v, p99 %v, at most %v", p50, p99, gaps[len(gaps)-1])
					assert.LessOrEqual(t, p50, 10*time.Millisecond)
					assert.LessOrEqual(t, p99, 50*time.Millisecond)
				}
				h.stop()
			})
		})
	}
}

// slow is a backend some calls of which take longer.
type slow struct {
	*shardstest.Backend
	leave leave
}

type slowSession struct {
	driver.Session
	leave leave
}

func (b slow) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, self, ttl)
	return slowSession{s, b.leave}, err
}

func (s slowSession) Look(ctx context.Context, known uint64) (driver.View, error) {
	v, err := s.Session.Look(ctx, known)
	bubble.Sleep(s.leave.look)
	return v, err
}

func (s slowSession) Claim(ctx context.Context, names []string) ([]driver.Grant, error) {
	bubble.Sleep(time.Duration(len(names)) * s.leave.claim)
	return s.Session.Claim(ctx, names)
}

// A fleet that stops as a whole: each node sees others, and none of them claims anything.
func TestNodesThatAllLeaveDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 6_000
		h := newHandover(t, 3, n, 0, func(b *shardstest.Backend) driver.Backend { b.SetDelay(time.Millisecond); return b })
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
