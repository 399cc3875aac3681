package shards_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

// A group is a store, the nodes on it, and who works on what: works that overlap fail the test.
type group struct {
	t     *testing.T
	store *shardstest.Store

	mu      sync.Mutex
	working map[string]string // identity by shard
	terms   map[string]leader.Term
	overlap map[string]time.Time // begin of one, by shard: it has to end in the same moment
}

func newGroup(t *testing.T) *group {
	t.Helper()
	return &group{t: t, store: shardstest.NewStore(), working: map[string]string{}, terms: map[string]leader.Term{}, overlap: map[string]time.Time{}}
}

// A member is a node of a group.
type member struct {
	*shards.Node
	backend *shardstest.Backend
	stop    context.CancelFunc
	done    chan error
}

// join begins a node.
func (g *group) join(identity string, config shards.Config) *member {
	return g.joinWith(identity, config, g.work(identity))
}

func (g *group) joinWith(identity string, config shards.Config, work func(context.Context, shards.Shard) error) *member {
	g.t.Helper()
	m := &member{backend: g.store.Backend(), done: make(chan error, 1)}
	config.Name, config.Backend, config.Identity = "tenants", m.backend, identity
	if config.List == nil && config.Shards == nil {
		config.Count = cmp.Or(config.Count, 30)
	}
	var err error
	m.Node, err = shards.New(config)
	require.NoError(g.t, err)
	ctx, stop := context.WithCancel(g.t.Context())
	m.stop = stop
	go func() { m.done <- m.Run(ctx, work) }()
	return m
}

// end stops a node and waits for it.
func (m *member) end(t *testing.T) {
	t.Helper()
	m.stop()
	require.NoError(t, <-m.done)
	assert.Empty(t, m.Owned())
}

// work works until its context ends, and checks that nobody else does.
func (g *group) work(identity string) func(context.Context, shards.Shard) error {
	return func(ctx context.Context, s shards.Shard) error {
		g.begin(identity, s)
		<-ctx.Done()
		g.finish(s)
		return ctx.Err()
	}
}

func (g *group) begin(identity string, s shards.Shard) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.working[s.Name] != "" { // the notice of a session that was killed is under way
		g.overlap[s.Name] = time.Now()
	}
	assert.Equal(g.t, 1, s.Term.Compare(g.terms[s.Name]), "terms rise")
	g.working[s.Name], g.terms[s.Name] = identity, s.Term
}

func (g *group) finish(s shards.Shard) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.terms[s.Name] != s.Term { // another began before
		assert.Equal(g.t, time.Now(), g.overlap[s.Name], "two nodes worked on %s", s.Name)
		return
	}
	delete(g.working, s.Name)
}

// works is who works on what now.
func (g *group) works() map[string]string {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.working)
}

// loads is how many shards each works on.
func (g *group) loads() map[string]int {
	loads := map[string]int{}
	for _, identity := range g.works() {
		loads[identity]++
	}
	return loads
}

// pass lets time pass, and what happens by then be done.
func pass(d time.Duration) {
	bubble.Sleep(d)
	synctest.Wait()
}

const settled = 2 * time.Minute

func TestShardsAreSpreadEvenlyAndMoveWhenNodesComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		a, b := g.join("a", shards.Config{}), g.join("b", shards.Config{})
		pass(5 * time.Second)
		assert.Equal(t, map[string]int{"a": 15, "b": 15}, g.loads(), "from empty")
		before := g.works()

		c := g.join("c", shards.Config{})
		pass(settled)
		assert.Equal(t, map[string]int{"a": 10, "b": 10, "c": 10}, g.loads())
		assert.Equal(t, int64(10), a.Stats().Moved+b.Stats().Moved, "what the new one gets moves, and nothing else")
		for name, identity := range g.works() {
			assert.True(t, identity == "c" || identity == before[name])
		}

		c.end(t)
		assert.Len(t, g.works(), 30, "others took what it released, at once")
		pass(settled)
		assert.Equal(t, map[string]int{"a": 15, "b": 15}, g.loads())
		assert.Equal(t, g.works(), g.store.Owners())
		assert.Zero(t, a.Stats().Lost+b.Stats().Lost+c.Stats().Lost)
		a.end(t)
		assert.Len(t, g.works(), 30)
		b.end(t)
		assert.Empty(t, g.store.Owners())
	})
}

func TestAShardIsReleasedOnlyWhenItsWorkHasReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		slow := func(ctx context.Context, s shards.Shard) error {
			g.begin("a", s)
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), leader.ErrReleased)
			bubble.Sleep(20 * time.Second)
			assert.Equal(t, "a", g.store.Owners()[s.Name], "still its own")
			g.finish(s)
			return nil
		}
		a := g.joinWith("a", shards.Config{}, slow)
		pass(20 * time.Second)
		b := g.join("b", shards.Config{})
		pass(settled)
		assert.Equal(t, map[string]int{"a": 15, "b": 15}, g.loads())
		a.end(t)
		assert.Equal(t, map[string]int{"b": 30}, g.loads())
		b.end(t)
	})
}

func TestWorkThatDoesNotEndIsReleasedAfterDrainTimeoutOrKept(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t)
				release := make(chan struct{})
				var problems []error
				a := g.joinWith("a", shards.Config{Count: 1, KeepUntilDrained: keep, Callbacks: shards.Callbacks{
					OnError: func(err error) { problems = append(problems, err) },
				}}, func(context.Context, shards.Shard) error { <-release; return nil })
				pass(settled)
				a.stop()
				pass(shards.DefaultDrainTimeout - time.Second)
				assert.Len(t, g.store.Owners(), 1)
				pass(settled)
				if keep {
					assert.Len(t, g.store.Owners(), 1)
				} else {
					assert.Empty(t, g.store.Owners())
				}
				require.Len(t, problems, 1)
				require.ErrorIs(t, problems[0], leader.ErrDrainExceeded)
				close(release)
				require.NoError(t, <-a.done, "it waited for the work")
				assert.Empty(t, g.store.Owners())
			})
		})
	}
}

func TestTheEndOfASessionCostsHalfOfTheShards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		var lost []error
		a := g.join("a", shards.Config{Callbacks: shards.Callbacks{OnLost: func(_ shards.Shard, err error) { lost = append(lost, err) }}})
		pass(20 * time.Second)
		before := g.terms["0"]
		require.True(t, a.backend.Kill(0))
		synctest.Wait()
		require.Len(t, lost, 15)
		require.ErrorIs(t, lost[0], leader.ErrLost)
		loss, ok := errors.AsType[*shards.LostError](lost[0])
		require.True(t, ok)
		assert.Equal(t, "tenants", loss.Group)
		pass(20 * time.Second)
		assert.Len(t, g.works(), 30, "it opens another session")
		assert.Equal(t, int64(15), a.Stats().Lost)
		assert.Equal(t, 2, a.Stats().Sessions)
		assert.GreaterOrEqual(t, g.terms["0"].N, before.N)
		a.end(t)
	})
}

func TestANodeThatIsCutOffStopsBeforeOthersBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		a, b := g.join("a", shards.Config{}), g.join("b", shards.Config{})
		pass(20 * time.Second)
		a.backend.Cut()
		pass(shards.DefaultLeaseDuration + 4*time.Second)
		assert.Equal(t, map[string]int{"b": 30}, g.loads(), "and no two worked on one, which work checks")
		assert.Empty(t, a.Owned())
		a.backend.Heal()
		pass(settled)
		assert.Equal(t, map[string]int{"a": 15, "b": 15}, g.loads())
		a.end(t)
		b.end(t)
	})
}

func TestWorkThatFailsBeginsAgainAndIsGivenAwayInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		boom := errors.New("boom")
		calls := 0
		var released, failed []error
		a := g.joinWith("a", shards.Config{Count: 1, Callbacks: shards.Callbacks{
			OnWorkFailed: func(_ shards.Shard, err error) { failed = append(failed, err) },
		}}, func(context.Context, shards.Shard) error {
			if calls++; calls%2 == 1 {
				panic("at the disco")
			}
			return boom
		})
		events, stop := context.WithCancel(t.Context())
		stream := a.Events(events)
		var kinds []shards.EventKind
		reading := make(chan struct{})
		go func() {
			defer close(reading)
			for v := range stream {
				kinds = append(kinds, v.Kind)
				if v.Kind == shards.EventReleased {
					released = append(released, v.Err)
				}
			}
		}()
		pass(40 * time.Second)
		assert.Equal(t, 5, calls)
		require.Len(t, failed, 5)
		require.ErrorIs(t, failed[0], leader.ErrPanic)
		require.ErrorIs(t, failed[1], boom)
		assert.Equal(t, map[string]string{"0": "a"}, g.store.Owners(), "no other node would claim it")
		assert.Zero(t, a.Stats().GaveAway)

		b := g.join("b", shards.Config{Count: 1})
		pass(10 * time.Second)
		assert.Equal(t, int64(1), a.Stats().GaveAway)
		assert.Equal(t, map[string]string{"0": "b"}, g.works(), "another takes it")
		b.end(t)
		a.end(t)
		stop()
		<-reading
		require.NotEmpty(t, released)
		require.ErrorIs(t, released[0], shards.ErrGaveAway)
		assert.Equal(t, shards.EventAcquired, kinds[0])
		assert.Equal(t, shards.EventStopped, kinds[len(kinds)-1])
	})
}

func TestWorkThatIsDoneIsNotRepeatedElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		calls := 0
		a := g.joinWith("a", shards.Config{Count: 1}, func(context.Context, shards.Shard) error { calls++; return nil })
		pass(settled)
		assert.Equal(t, 1, calls)
		assert.Len(t, a.Owned(), 1)
		a.end(t)
		assert.Empty(t, g.store.Owners())
	})
}

func TestTheListAndTheWeightChangeWhileItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		type answer struct {
			names []string
			err   error
		}
		var list atomic.Pointer[answer]
		set := func(err error, names ...string) { list.Store(&answer{names, err}) }
		set(nil, "x", "y", "z")
		changed := make(chan struct{})
		config := shards.Config{List: func(context.Context) ([]string, error) { a := list.Load(); return a.names, a.err }, ListChanged: changed}
		a := g.join("a", config)
		pass(10 * time.Second)
		assert.Len(t, g.works(), 3)
		set(nil, "w", "x", "y")
		changed <- struct{}{}
		assert.Equal(t, map[string]string{"w": "a", "x": "a", "y": "a"}, g.works())
		set(errors.New("no database"))
		changed <- struct{}{}
		assert.Len(t, g.works(), 3, "an error changes nothing")
		set(nil, "x")
		pass(10 * time.Second)
		assert.Len(t, g.works(), 1, "it is asked for again")
		a.end(t)

		b, c := g.join("b", shards.Config{}), g.join("c", shards.Config{Weight: 200})
		pass(10 * time.Second)
		assert.Equal(t, map[string]int{"b": 10, "c": 20}, g.loads())
		require.NoError(t, c.SetWeight(50))
		require.Error(t, c.SetWeight(0))
		pass(settled)
		assert.Equal(t, map[string]int{"b": 20, "c": 10}, g.loads())
		b.end(t)
		c.end(t)
	})
}

func TestPeoplePinShardsAndDrainNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		a, b := g.join("a", shards.Config{}), g.join("b", shards.Config{})
		pass(5 * time.Second)
		for name := range g.works() {
			require.NoError(t, a.backend.Pin(t.Context(), name, "b"))
			break
		}
		require.NoError(t, b.backend.Drain(t.Context(), "a", true))
		pass(time.Second)
		assert.Equal(t, map[string]int{"b": 30}, g.loads(), "sooner than MinStay")
		require.NoError(t, b.backend.Drain(t.Context(), "b", true))
		pass(settled)
		assert.Equal(t, map[string]int{"b": 30}, g.loads(), "there is nobody to take them")
		require.NoError(t, b.backend.Drain(t.Context(), "a", false))
		pass(time.Second)
		assert.Equal(t, map[string]int{"a": 30}, g.loads())
		a.end(t)
		b.end(t)
	})
}

func TestAnIdleNodeAsksLittleWhateverItOwns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		a, b := g.join("a", shards.Config{Count: 2000}), g.join("b", shards.Config{Count: 2000})
		pass(time.Minute)
		assert.Equal(t, map[string]int{"a": 1000, "b": 1000}, g.loads())
		before := a.backend.Calls()
		pass(10 * time.Minute)
		assert.LessOrEqual(t, a.backend.Calls()-before, 600, "60 a minute")
		a.end(t)
		b.end(t)
	})
}

func TestAMistakeThatNoAttemptMendsEndsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		backend := shardstest.NewStore().Backend()
		backend.SetUnavailable(fmt.Errorf("wrong password: %w", leader.ErrPermanent))
		n, err := shards.New(shards.Config{Name: "tenants", Backend: backend, Count: 1})
		require.NoError(t, err)
		err = n.Run(t.Context(), func(context.Context, shards.Shard) error { return nil })
		require.ErrorIs(t, err, leader.ErrPermanent)
		require.ErrorIs(t, err, leader.ErrGaveUp)
	})
}

func TestAnOutageIsReportedOnceAndEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		problems := map[string]int{}
		a := g.join("a", shards.Config{Callbacks: shards.Callbacks{OnError: func(err error) { problems[err.Error()]++ }}})
		pass(20 * time.Second)
		a.backend.SetUnavailable(errors.New("no route to host"))
		pass(settled)
		assert.Empty(t, g.works())
		assert.Equal(t, 1, problems["opening a session: shardstest: open: no route to host"], problems)
		a.backend.SetUnavailable(nil)
		pass(20 * time.Second)
		assert.Len(t, g.works(), 30)
		a.end(t)
	})
}

func TestMain(m *testing.M) { leak.Main(m) }
