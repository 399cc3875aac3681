package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

// waitsForOne is a Tracer that passes on when a request for agent 1 begins to wait.
type waitsForOne chan struct{}

func (w waitsForOne) tracer() advisory.Tracer {
	return advisory.Tracer{Wait: func(_ context.Context, d advisory.WaitData) {
		if d.Key == agents.ID(1) {
			w <- struct{}{}
		}
	}}
}

// A caller requests a key in shared mode. A reader of that key waits for a key that the caller
// holds.
func TestReadersOfOneKeyOnAServerAreNoDeadlock(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		waiting := make(waitsForOne, 1)
		l := open(t, advisory.Config{DSN: pgtest.DSN(t), HandOverBudget: -1, Tracer: waiting.tracer()})
		readers := l.With(advisory.Options{Shared: true})
		one, err := l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		two, err := readers.Acquire(t.Context(), agents.ID(2))
		require.NoError(t, err)
		write := make(chan error, 1)
		go func() {
			write <- l.Do(two.Context(), agents.ID(1), func(context.Context) error { return nil })
		}()
		<-waiting
		require.NoError(t, readers.Do(one.Context(), agents.ID(2), func(context.Context) error { return nil }))
		require.NoError(t, one.Release())
		require.NoError(t, <-write)

		// A control: the same with writers is a deadlock.
		one, err = readers.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		go func() { write <- l.Do(two.Context(), agents.ID(1), func(context.Context) error { return nil }) }()
		<-waiting
		err = l.Do(one.Context(), agents.ID(2), func(context.Context) error { return nil })
		require.ErrorIs(t, err, advisory.ErrDeadlock)
		require.NoError(t, one.Release())
		require.NoError(t, <-write)
		require.NoError(t, two.Release())
	})
}

// assertCycle checks a refused wait and the cycle that it names.
func assertCycle(w *world, err error, want ...namespace.Key) {
	w.Helper()
	require.ErrorIs(w, err, advisory.ErrDeadlock)
	e, ok := errors.AsType[*advisory.DeadlockError](err)
	require.True(w, ok)
	assert.Equal(w, want, e.Cycle)
}

func TestACycleOfThreeIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		one, two, three := w.acquire(a, 1), w.acquire(a, 2), w.acquire(a, 3)
		first := w.beginAcquire(one.Context(), a, 2)
		second := w.beginAcquire(two.Context(), a, 3)
		_, err := a.Acquire(three.Context(), entity(1))
		assertCycle(w, err, entity(1), entity(2), entity(3))
		w.release(three)
		w.release(w.now(second), two)
		w.release(w.now(first), one)
	})
}

func TestAWaiterThatLeftClosesNoCycle(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		one, two := w.acquire(a, 1), w.acquire(a, 2)
		ctx, cancel := context.WithCancel(one.Context())
		left := w.beginAcquire(ctx, a, 2)
		cancel()
		require.ErrorIs(w, (<-left).err, context.Canceled)
		p := w.beginAcquire(two.Context(), a, 1)
		w.release(one)
		w.release(w.now(p), two)
	})
}

func TestACycleOfAcquireAllAndANestedRequestIsRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		two := w.acquire(a, 2)
		all := w.begin(func() (*advisory.Lock, error) { return a.AcquireAll(w.Context(), entity(2), entity(1)) })
		w.assertWaits(all) // it has entity 1 and waits for 2
		_, err := a.Acquire(two.Context(), entity(1))
		assertCycle(w, err, entity(1), entity(2))
		w.release(two)
		w.release(w.now(all))
	})
}

func TestAnAcquireAllThatWouldCloseACycleGivesEverythingBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		one := w.acquire(a, 1)
		three := w.acquire(a, 3)
		p := w.beginAcquire(one.Context(), a, 3)
		_, err := a.AcquireAll(three.Context(), entity(2), entity(1))
		assertCycle(w, err, entity(1), entity(3))
		w.release(three)
		w.release(w.now(p), w.acquire(a, 2), one)
	})
}

// noHandOver has every request ask the server, readers of a key that is held among
// them.
var noHandOver = advisory.Config{HandOverBudget: -1}

// stopTriesOf has tries of entity i stop on their way to the server, until the result
// is called.
func (f *faulty) stopTriesOf(i int64) (goOn func()) {
	stopped := make(chan struct{})
	f.onTry = func(tag namespace.Tag) error {
		if tag == entity(i).Tag() {
			<-stopped
		}
		return nil
	}
	return func() { close(stopped) }
}

func TestAnAcquireAllOfReadersClosesNoCycleWithAReader(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f := w.openFaulty(noHandOver)
		two := w.acquire(a.With(shared), 2)
		goOn := f.stopTriesOf(2)
		all := w.begin(func() (*advisory.Lock, error) {
			return a.With(shared).AcquireAll(w.Context(), entity(1), entity(2))
		})
		w.assertWaits(all) // it has entity 1
		writer := w.beginAcquire(two.Context(), a, 1)
		w.assertWaits(writer)
		goOn()
		w.release(w.now(all))
		w.release(w.now(writer), two)
	})
}

func TestAnAcquireAllOfReadersBehindAWriterIsADeadlock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		two := w.acquire(a.With(shared), 2)
		writer := w.beginAcquire(w.Context(), a, 2)
		all := w.begin(func() (*advisory.Lock, error) {
			return a.With(shared).AcquireAll(w.Context(), entity(1), entity(2))
		})
		w.assertWaits(all) // it has entity 1, and is behind the writer
		_, err := a.Acquire(two.Context(), entity(1))
		assertCycle(w, err, entity(1), entity(2))
		w.release(two)
		w.release(w.now(writer))
		w.release(w.now(all))
	})
}

// An actor is one goroutine with locks inside locks.
type actor struct {
	locks []*advisory.Lock
	held  []want
	wants *want // what it waits for; nil = nothing
	call  pending
}

type want struct {
	entity int64
	shared bool
}

func (w want) String() string { return fmt.Sprintf("{%d shared=%v}", w.entity, w.shared) }

func (w want) conflicts(other want) bool {
	return w.entity == other.entity && !(w.shared && other.shared)
}

// A waitGraph records holders and waiters, in the order of their arrival. It is the definition
// of a deadlock: a waits for b if b holds a lock that conflicts with a's request, or waits for
// such a lock ahead of a.
type waitGraph struct {
	actors []*actor
	line   []*actor // all who wait
}

// waitsFor returns those that an actor would wait for, if it came behind ahead.
func (g *waitGraph) waitsFor(a *actor, w want, ahead []*actor) (others []*actor) {
	for _, b := range g.actors {
		conflict := func(h want) bool { return w.conflicts(h) }
		if b != a && slices.ContainsFunc(b.held, conflict) {
			others = append(others, b)
		}
	}
	for _, b := range ahead {
		if w.conflicts(*b.wants) {
			others = append(others, b)
		}
	}
	return others
}

// deadlocks reports whether a wait of the actor would close a cycle.
func (g *waitGraph) deadlocks(a *actor, w want) bool {
	seen := make(map[*actor]bool)
	todo := g.waitsFor(a, w, g.line)
	for len(todo) > 0 {
		b := todo[0]
		todo = todo[1:]
		if b == a {
			return true
		}
		if seen[b] || b.wants == nil {
			continue
		}
		seen[b] = true
		todo = append(todo, g.waitsFor(b, *b.wants, g.line[:slices.Index(g.line, b)])...)
	}
	return false
}

// running returns those who wait for nothing.
func (g *waitGraph) running() []*actor {
	return slices.DeleteFunc(slices.Clone(g.actors), func(a *actor) bool { return a.wants != nil })
}

// settle notes what the calls returned by now.
func (g *waitGraph) settle(w *world) {
	w.Helper()
	synctest.Wait()
	for _, a := range slices.Clone(g.line) {
		if len(a.call) == 0 {
			continue
		}
		o := <-a.call
		require.NoError(w, o.err)
		a.locks, a.held = append(a.locks, o.lock), append(a.held, *a.wants)
		a.wants = nil
		g.line = slices.DeleteFunc(g.line, func(b *actor) bool { return b == a })
	}
}

// A play is one run of actors who take locks inside locks, step by step.
type play struct {
	*world
	seed          uint64
	random        *rand.Rand
	lockers       []*advisory.Locker // each wish goes to one of them
	readers       bool               // some wishes are for shared locks
	story         []string
	found, waited int
}

func (p *play) run() {
	g := &waitGraph{}
	for range 6 {
		g.actors = append(g.actors, &actor{})
	}
	for range 150 {
		runs := g.running()
		if len(runs) == 0 || p.random.IntN(2) == 0 {
			bubble.Sleep(5 * time.Millisecond)
			g.settle(p.world)
			runs = g.running()
		}
		require.NotEmpty(p, runs, "seed %d: nobody can go on after %v", p.seed, p.story)
		a := runs[p.random.IntN(len(runs))]
		if n := len(a.locks); n == 3 || n > 0 && p.random.IntN(3) == 0 {
			p.story = append(p.story, fmt.Sprint(slices.Index(g.actors, a), " releases ", a.held[n-1]))
			p.releaseLast(a)
			g.settle(p.world)
			continue
		}
		p.wish(g, a, want{p.random.Int64N(4), p.readers && p.random.IntN(2) == 0})
	}
	bubble.Sleep(5 * time.Millisecond)
	g.settle(p.world)
	for len(g.line) > 0 || slices.ContainsFunc(g.actors, func(a *actor) bool { return len(a.locks) > 0 }) {
		for _, a := range g.actors {
			if a.wants == nil && len(a.locks) > 0 {
				p.releaseLast(a)
				bubble.Sleep(5 * time.Millisecond)
				g.settle(p.world)
			}
		}
	}
}

func (p *play) releaseLast(a *actor) {
	n := len(a.locks) - 1
	p.release(a.locks[n])
	a.locks, a.held = a.locks[:n], a.held[:n]
}

// wish begins a call, which is refused if and only if it is a deadlock.
func (p *play) wish(g *waitGraph, a *actor, wish want) {
	if slices.ContainsFunc(a.held, func(h want) bool { return h.entity == wish.entity }) {
		return // it would be re-entrant
	}
	deadlock := g.deadlocks(a, wish)
	p.story = append(p.story, fmt.Sprint(slices.Index(g.actors, a), " wants ", wish))
	ctx, locker := p.Context(), p.lockers[p.random.IntN(len(p.lockers))]
	if n := len(a.locks); n > 0 {
		ctx = a.locks[n-1].Context()
	}
	if wish.shared {
		locker = locker.With(shared)
	}
	call := p.beginAcquire(ctx, locker, wish.entity)
	if deadlock {
		p.found++
		require.Len(p, call, 1, "seed %d: a deadlock is not found: %v", p.seed, p.story)
		require.ErrorIs(p, (<-call).err, advisory.ErrDeadlock, "seed %d: %v", p.seed, p.story)
		return
	}
	if len(call) == 0 {
		p.waited++
	}
	a.call, a.wants = call, &wish
	g.line = append(g.line, a)
	g.settle(p.world)
}

// TestADeadlockIsFoundIfAndOnlyIfThereIsOne compares the refusals with the graph of
// waits, step by step.
func TestADeadlockIsFoundIfAndOnlyIfThereIsOne(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		found, waited := 0, 0
		budgets := []time.Duration{0, -1}
		for seed := range uint64(30) {
			l, f := w.openFaulty(advisory.Config{Wait: advisory.NoTimeout, MaxConns: 50, HandOverBudget: budgets[seed%2]})
			f.onTry = func(namespace.Tag) error { // others come while a try is on its way
				bubble.Sleep(time.Millisecond)
				return nil
			}
			p := &play{world: w, seed: seed, random: rand.New(rand.NewPCG(seed, 7)), lockers: []*advisory.Locker{l}, readers: true}
			p.run()
			found, waited = found+p.found, waited+p.waited
		}
		require.Greater(w, found, 50, "deadlocks were met")
		require.Greater(w, waited, 50, "waits that are none were met")
	})
}

// The same with several Lockers of one process.
func TestADeadlockThroughSeveralLockersIsFoundIfAndOnlyIfThereIsOne(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		found, waited := 0, 0
		for seed := range uint64(20) {
			p := &play{world: w, seed: seed, random: rand.New(rand.NewPCG(seed, 8))}
			for range 3 {
				p.lockers = append(p.lockers, w.openTogether(advisory.Config{Wait: advisory.NoTimeout, MaxConns: 50}))
			}
			p.run()
			found, waited = found+p.found, waited+p.waited
			for _, l := range p.lockers {
				l.Close()
			}
		}
		require.Greater(w, found, 50, "deadlocks were met")
		require.Greater(w, waited, 50, "waits that are none were met")
	})
}
