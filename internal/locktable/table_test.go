package locktable

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pglatch/pglatch/internal/test/soak"
)

// A family is a set of scenarios that differ in who asks for what.
type family struct {
	name      string
	scenarios []scenario
}

// nestedActors are callers that take a lock while they hold another: circles, two ways to the same locks, and a lock that the caller has.
func nestedActors() [][][]acquisition {
	return [][][]acquisition{
		{{x(0), x(1)}, {x(1), x(0)}},
		{{x(0), x(1)}, {x(0), x(1)}},
		{{s(0), x(1)}, {s(1), x(0)}},
		{{x(0), s(1)}, {s(1), s(0)}},
		{{s(0), x(0)}, {x(0)}},
		{{x(0), try(1)}, {x(1), try(0)}},
	}
}

func slotActors() [][][]acquisition {
	return [][][]acquisition{
		one(slot(1), slot(1)), one(slot(2), slot(2)), one(slot(1), x(-1)), one(slot(1), try(-1)), one(slot(2), x(-1)), one(slot(1), s(-1)),
		one(slot(1), x(-1), try(-1)),
		{{slot(1), slot(1)}, {slot(1)}},
	}
}

func allActors() [][][]acquisition {
	return [][][]acquisition{
		one(x(0, 1), x(0, 1)), one(s(0, 1), s(0, 1)), one(x(0, 1), s(0, 1)), one(x(0, 1), x(0)), one(x(0, 1), x(1)), one(s(0, 1), x(1)), one(x(0, 1), try(1)),
		one(s(0, 1), s(0, 2)),
	}
}

// families are explored in each run of the tests. In a prompt scenario the carrier reacts at once.
func families() (all []family) {
	for k := 1; k <= 2; k++ {
		add := func(name string, actors [][][]acquisition, like scenario) {
			like.perConn = k
			if like.conns == 0 {
				like.conns = 2
			}
			all = append(all, family{fmt.Sprintf("%s, %d locks on a connection", name, k), each(actors, like)})
		}
		add("two requests", pairs(), scenario{losses: 1, withdraw: true, refuse: true})
		add("two requests, time passes", pairs(), scenario{losses: 1, withdraw: true, aged: true, prompt: true})
		add("two requests, one connection", pairs(), scenario{conns: 1, losses: 2, withdraw: true, refuse: true})
		add("two requests and a borrower", pairs(), scenario{losses: 1, borrowed: 1, prompt: true})
		add("two requests, Close", pairs(), scenario{losses: 1, withdraw: true, closes: true, prompt: true})
		add("three requests", triples(), scenario{withdraw: true, refuse: true, prompt: k == 2})
		add("slots", slotActors(), scenario{losses: 1, withdraw: true, prompt: true})
		add("slots, Close", slotActors(), scenario{closes: true, prompt: true})
		add("all of two keys", allActors(), scenario{losses: 1, withdraw: true, prompt: true})
		add("all of two keys, Close", allActors(), scenario{closes: true, withdraw: true, prompt: true})
		add("nested", nestedActors(), scenario{losses: 1, withdraw: k == 1, prompt: true})
		add("nested, Close", nestedActors(), scenario{closes: true, prompt: true})
		add("nested, room for one lock", nestedActors(), scenario{losses: 1, maxLocks: 1, prompt: true})
	}
	return append(all, family{
		"three requests, a loss, 1 lock on a connection",
		each(triples(), scenario{conns: 2, perConn: 1, losses: 1, withdraw: true, refuse: true, prompt: true}),
	})
}

// largeFamilies are explored by make soak.
func largeFamilies() (all []family) {
	for k := 1; k <= 2; k++ {
		add := func(name string, actors [][][]acquisition, like scenario) {
			like.perConn, like.conns = k, 2
			all = append(all, family{fmt.Sprintf("%s, %d locks on a connection", name, k), each(actors, like)})
		}
		add("three requests, a loss", triples(), scenario{losses: 1, withdraw: true, refuse: true})
		add("two requests, two losses", pairs(), scenario{losses: 2, withdraw: true, refuse: true})
		add("slots", slotActors(), scenario{losses: 1, withdraw: true, refuse: true})
		add("all of two keys", allActors(), scenario{losses: 1, withdraw: true, refuse: true})
		add("nested", nestedActors(), scenario{losses: 1, withdraw: true, refuse: true})
	}
	return all
}

func TestExploreEveryState(t *testing.T) {
	before := debug.SetGCPercent(400)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	all := families()
	if soak.Size(t, false, true) {
		all = append(all, largeFamilies()...)
	}
	var total atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d states; each scenario was explored up to %d of them (0 = all)", total.Load(), explorationBound)
	})
	for _, f := range all {
		var states atomic.Int64
		t.Run(f.name, func(t *testing.T) {
			t.Cleanup(func() { t.Logf("%d scenarios, %d states", len(f.scenarios), states.Load()) })
			for _, sc := range f.scenarios {
				t.Run(fmt.Sprint(sc.actors), func(t *testing.T) {
					t.Parallel()
					e := exploration{scenario: sc, bound: explorationBound}
					require.Empty(t, e.run())
					states.Add(int64(e.states))
					total.Add(int64(e.states))
				})
			}
		})
	}
}

// anyScenario draws a table with up to three connections and six callers.
func anyScenario(t *rapid.T) scenario {
	sc := scenario{
		conns: rapid.IntRange(1, 3).Draw(t, "connections"), perConn: rapid.IntRange(1, 3).Draw(t, "locks on each"),
		losses: rapid.IntRange(0, 4).Draw(t, "losses"), withdraw: rapid.Bool().Draw(t, "withdraw"), refuse: rapid.Bool().Draw(t, "refuse"),
		closes: rapid.IntRange(0, 3).Draw(t, "closes") == 0, aged: rapid.Bool().Draw(t, "aged"), borrowed: rapid.IntRange(0, 3).Draw(t, "borrowed"),
		maxLocks: rapid.SampledFrom([]int{0, 0, 0, 2, 4}).Draw(t, "capacity"),
	}
	keys := rapid.IntRange(3, 5).Draw(t, "keys")
	for range rapid.IntRange(2, 6).Draw(t, "callers") {
		var script []acquisition
		if rapid.IntRange(0, 3).Draw(t, "slot first") == 0 { // a circle through a semaphore is not seen, so that no slot comes second
			script = append(script, slot(rapid.IntRange(1, 2).Draw(t, "slots")))
		}
		for range rapid.IntRange(1, 2).Draw(t, "nested") {
			script = append(script, anyAcquisition(t, keys))
		}
		sc.actors = append(sc.actors, script)
	}
	return sc
}

func anyAcquisition(t *rapid.T, keys int) acquisition {
	first := rapid.IntRange(0, keys-1).Draw(t, "key")
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0, 1:
		return try(first)
	case 2, 3:
		return s(first)
	case 4, 5:
		return x(-1 - rapid.IntRange(0, 1).Draw(t, "slot"))
	case 6:
		if second := rapid.IntRange(0, keys-1).Draw(t, "second"); second != first {
			return acquisition{keys: []int{min(first, second), max(first, second)}, mode: rapid.SampledFrom([]Mode{Exclusive, Shared}).Draw(t, "mode")}
		}
	}
	return x(first)
}

func TestRandomWalksThroughLargerTables(t *testing.T) {
	t.Parallel()
	walks := soak.Size(t, 200, 10_000)
	rapid.Check(t, func(t *rapid.T) {
		sc := anyScenario(t)
		for seed := range walks {
			if problem := walk(sc, uint64(seed)); problem != "" {
				t.Fatalf("%+v\n%s", sc, problem)
			}
		}
	})
}

func TestMain(m *testing.M) {
	soak.Repeatable()
	os.Exit(m.Run())
}
