package advisory_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

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

// A waitGraph knows who holds and who waits, in the order of their coming. It is what
// a deadlock is by definition: a waits for b if b holds, or waits ahead of a for, what
// conflicts with a's wish.
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
			time.Sleep(5 * time.Millisecond)
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
	time.Sleep(5 * time.Millisecond)
	g.settle(p.world)
	for len(g.line) > 0 || slices.ContainsFunc(g.actors, func(a *actor) bool { return len(a.locks) > 0 }) {
		for _, a := range g.actors {
			if a.wants == nil && len(a.locks) > 0 {
				p.releaseLast(a)
				time.Sleep(5 * time.Millisecond)
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
				time.Sleep(time.Millisecond)
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
