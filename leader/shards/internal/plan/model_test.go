//go:build !race

package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pglatch/pglatch/leader/shards/driver"
)

// look is the time between two looks of a node, in the model.
const look = time.Second

var rules = Rules{MinStay: 10 * look, Patience: 2 * look, MovesPerSecond: 10}

// A world is a store with try-locks, and the nodes at work on it.
type world struct {
	shards *Shards
	now    time.Duration
	owners []string // the truth; "" = nobody
	nodes  map[string]*actor
	old    []driver.View // what was to be seen before
	moved  []time.Duration
	rules  Rules
	trusts bool // the control: a node owns what the targets give it, and asks nobody
	naive  bool // the control: nodes forget at once who let something lie
	silent bool // the control: nodes do not say what they refuse
	moves  int
	twice  bool // a shard was moved to even out twice within MinStay
}

// An actor is a node that lives.
type actor struct {
	*Node
	list     *Shards
	draining bool
	hangs    bool            // it does nothing more, and keeps what it owns
	refuses  map[string]bool // what it cannot claim
}

func newWorld(shards *Shards) *world {
	w := &world{shards: shards, owners: make([]string, len(shards.Names)), nodes: map[string]*actor{}, rules: rules}
	w.moved = slices.Repeat([]time.Duration{never}, len(w.owners))
	return w
}

func (w *world) join(identity string) {
	w.nodes[identity] = &actor{Node: NewNode(identity, w.rules, w.shards, w.now), list: w.shards}
}

// die ends a node, and its locks with it.
func (w *world) die(identity string) {
	delete(w.nodes, identity)
	for i, owner := range w.owners {
		if owner == identity {
			w.owners[i] = ""
		}
	}
}

// sight is what there is to be seen now.
func (w *world) sight() driver.View {
	v := driver.View{Owners: map[string]string{}}
	for identity, a := range w.nodes {
		m := driver.Member{Identity: identity, Weight: 100, List: a.list.Digest, Draining: a.draining}
		if !w.silent {
			m.Refuses = Refusals(slices.Collect(maps.Keys(a.refuses)))
		}
		v.Members = append(v.Members, m)
	}
	for i, owner := range w.owners {
		if owner != "" {
			v.Owners[w.shards.Names[i]] = owner
		}
	}
	return v
}

// act lets a node decide by a view and do so. Only some of its claims are done, if some is not nil.
func (w *world) act(identity string, seen driver.View, some func() bool) (did bool) {
	a := w.nodes[identity]
	if a.hangs {
		return false
	}
	if w.naive {
		a.forgive()
	}
	view := a.list.View(seen)
	d := a.Step(w.now, view)
	for _, i := range d.Give {
		a.Gone(i)
		w.owners[w.at(a, i)] = ""
		if !slices.ContainsFunc(seen.Members, func(m driver.Member) bool { return m.Identity == identity && m.Draining }) {
			w.moves++
			at := &w.moved[w.at(a, i)]
			w.twice = w.twice || *at != never && w.now-*at < w.rules.MinStay
			*at = w.now
		}
	}
	for _, i := range d.Claim {
		if some != nil && some() || a.refuses[a.list.Names[i]] {
			continue
		}
		at := &w.owners[w.at(a, i)]
		if *at == "" || w.trusts {
			*at = identity
			a.Owned(i, w.now)
		}
	}
	return len(d.Give)+len(d.Claim) > 0
}

// at is the index in the world's list of the shard that is i in the node's.
func (w *world) at(a *actor, i int) int {
	at, _ := w.shards.Index(a.list.Names[i])
	return at
}

// twoOwners says which shard two nodes believe to own, or that one does that does not.
func (w *world) twoOwners() string {
	for identity, a := range w.nodes {
		for i := range a.state {
			if owner := w.owners[w.at(a, i)]; a.state[i].mine != none && owner != identity {
				return fmt.Sprintf("%s works on %s, which %q owns", identity, a.list.Names[i], owner)
			}
		}
	}
	return ""
}

// settle runs rounds in which all goes well until a round changes nothing, and then for MinStay
// times more, which must change nothing either.
func (w *world) settle(t require.TestingT, limit int) (rounds int) {
	quiet, last := 0, 0
	for ; quiet < calm; rounds++ {
		require.Less(t, rounds, limit+calm, "it settles: %v", w.owners)
		w.now += look
		did := false
		for _, identity := range sorted(w.nodes) {
			did = w.act(identity, w.sight(), nil) || did
			require.Empty(t, w.twoOwners())
		}
		if quiet++; did {
			quiet, last = 0, rounds+1
		}
	}
	return last
}

// calm is how many rounds have to change nothing: longer than anybody is left out.
const calm = (maxMistrust + 1) * 10

func sorted(nodes map[string]*actor) []string {
	var all []string
	for identity := range nodes {
		all = append(all, identity)
	}
	slices.Sort(all)
	return all
}

// bound is within how many rounds a world settles: who was left out is not any more, what came a
// moment ago may move again, and so much moves at most.
func (w *world) bound() int {
	return (maxMistrust+2)*10 + 2 + 2*len(w.owners)/10 + 10
}

// assertEven checks that each shard is owned, and by as many of them as is fair.
func (w *world) assertEven(t require.TestingT) {
	got := map[string]int{}
	for i, owner := range w.owners {
		require.NotEmpty(t, owner, "%s is owned", w.shards.Names[i])
		got[owner]++
	}
	for identity := range w.nodes {
		assert.GreaterOrEqual(t, got[identity], len(w.owners)/len(w.nodes))
		assert.LessOrEqual(t, got[identity], (len(w.owners)+len(w.nodes)-1)/len(w.nodes))
	}
}

// Nodes join, die, hang and drain; claims are lost on the way; views are old, or lack members.
func trouble(t *rapid.T, w *world) {
	identities := names("n", 6)
	w.join(identities[0])
	for range rapid.IntRange(0, 60).Draw(t, "steps") {
		w.now += time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond
		w.old = append(w.old, w.sight())
		identity := rapid.SampledFrom(identities).Draw(t, "node")
		a := w.nodes[identity]
		switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
		case a == nil:
			w.join(identity)
		case what == 0 && len(w.nodes) > 1:
			w.die(identity)
		case what == 1:
			a.draining = !a.draining
		case what < 6: // who is not drawn is slow
			w.act(identity, w.sight(), nil)
		default:
			seen := rapid.SampledFrom(w.old).Draw(t, "seen")
			if rapid.Bool().Draw(t, "partition") {
				seen.Members = slices.DeleteFunc(slices.Clone(seen.Members), func(m driver.Member) bool {
					return m.Identity != identity && rapid.Bool().Draw(t, "unseen")
				})
			}
			w.act(identity, seen, func() bool { return rapid.Bool().Draw(t, "lost") })
		}
		if two := w.twoOwners(); two != "" {
			t.Fatalf("%s", two)
		}
	}
}

func TestWhateverNodesSeeEachShardHasOneOwnerAndAllAreOwnedEvenlyInTheEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(NewShards(names("s", rapid.IntRange(0, 40).Draw(t, "shards"))))
		trouble(t, w)
		for _, a := range w.nodes {
			a.draining = false
		}
		w.settle(t, w.bound())
		w.assertEven(t)
		assert.False(t, w.twice, "a shard was moved twice within MinStay")
	})
}

func TestTheControlThatTrustsMembershipHasTwoOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(NewShards(names("s", 10)))
	w.trusts = true
	w.join("a")
	before := w.sight()
	w.join("b")
	w.act("b", w.sight(), nil)
	w.act("a", before, nil)
	assert.NotEmpty(t, w.twoOwners())
}

func TestAMemberThatTakesNothingIsPassedOver(t *testing.T) {
	t.Parallel()
	w := newWorld(NewShards(names("s", 30)))
	for _, identity := range []string{"a", "b", "hangs"} {
		w.join(identity)
	}
	for range 5 {
		w.now += look
		w.act("a", w.sight(), nil)
		w.act("b", w.sight(), nil)
	}
	assert.NotContains(t, w.owners, "", "after Patience")
	for range 60 {
		w.now += look
		w.act("a", w.sight(), nil)
		w.act("b", w.sight(), nil)
	}
	assert.Less(t, w.moves, 60, "it gets little to leave alone")
	w.settle(t, w.bound())
	w.assertEven(t)
}

func TestAFlappingNodeMovesNothingTwiceWithinMinStay(t *testing.T) {
	t.Parallel()
	w := newWorld(NewShards(names("s", 90)))
	for _, identity := range []string{"a", "b", "c"} {
		w.join(identity)
	}
	w.settle(t, w.bound())
	for range 40 {
		if w.nodes["flaps"] == nil {
			w.join("flaps")
		} else {
			w.die("flaps")
		}
		for range 4 {
			w.now += look
			for _, identity := range sorted(w.nodes) {
				w.act(identity, w.sight(), nil)
			}
		}
	}
	assert.False(t, w.twice)
	assert.LessOrEqual(t, w.moves, 90*160/10, "each shard once in each MinStay")
	w.settle(t, w.bound())
	w.assertEven(t)
}

func TestTwoFleetsWithDifferentListsDoNotFight(t *testing.T) {
	t.Parallel()
	all := names("s", 60)
	w := newWorld(NewShards(all))
	older, newer := NewShards(all[:50]), NewShards(all[10:]) // ten are only known to each
	for identity, list := range map[string]*Shards{"old-1": older, "old-2": older, "new-1": newer, "new-2": newer} {
		w.nodes[identity] = &actor{Node: NewNode(identity, rules, list, 0), list: list}
	}
	for _, first := range []string{"old-1", "new-1"} {
		w.now += look
		w.act(first, w.sight(), nil)
	}
	w.settle(t, w.bound())
	for i, owner := range w.owners {
		switch {
		case i < 10:
			assert.Contains(t, owner, "old")
		case i >= 50:
			assert.Contains(t, owner, "new")
		default:
			assert.NotEmpty(t, owner)
		}
	}
	before := slices.Clone(w.owners)
	w.settle(t, 1)
	assert.Equal(t, before, w.owners)

	w.die("old-1")
	w.die("old-2")
	w.settle(t, w.bound())
	for i, owner := range w.owners {
		assert.Equal(t, i >= 10, owner != "", "what nobody knows any more is owned by nobody")
	}
}

// A thousand nodes and a hundred thousand shards with PGLATCH_SHARDS_SIMULATION=long; else
// fifty and five thousand. It logs how many steps and moves the changes took.
func TestASimulationSettlesInFewSteps(t *testing.T) {
	t.Parallel()
	members, n := 50, 5_000
	if os.Getenv("PGLATCH_SHARDS_SIMULATION") == "long" { // a minute and a half
		members, n = 1000, 100_000
	}
	sim := newSimulation(members, n)
	part := (n + members - 1) / members

	steps, moved := sim.settle(t, 1)
	t.Logf("from empty: %d steps, %d claims", steps, moved)
	assert.LessOrEqual(t, steps, 2)
	assert.Equal(t, n, moved)

	joiner := sim.join()
	steps, moved = sim.settle(t, 1)
	t.Logf("a join: %d steps, %d shards moved, ⌈N/M⌉ = %d", steps, moved, part)
	assert.LessOrEqual(t, moved, part)

	sim.leave(joiner)
	steps, moved = sim.settle(t, 1)
	t.Logf("a leave: %d steps, %d shards moved", steps, moved)
	assert.LessOrEqual(t, moved, part)

	gone := 0
	for range members / 10 {
		gone += sim.leave(sim.random.IntN(len(sim.members)))
	}
	steps, moved = sim.settle(t, 0.5)
	t.Logf("a tenth dies at once, and half see the last moment in each step: %d steps, %d shards moved of %d", steps, moved, gone)
	assert.LessOrEqual(t, moved, gone+len(sim.members), "what they owned, and a few")
}

// A simulation is a world of many nodes, as numbers, that share what they see.
type simulation struct {
	shards  *Shards
	random  *rand.Rand
	members []driver.Member
	nodes   []*Node // of the members
	owners  []string
	joined  int
	now     time.Duration
}

func newSimulation(members, n int) *simulation {
	s := &simulation{shards: NewShards(names("s", n)), random: rand.New(rand.NewPCG(1, 2)), owners: make([]string, n)}
	for range members {
		s.join()
	}
	return s
}

func (s *simulation) join() (m int) {
	identity := fmt.Sprintf("node-%06d", s.joined)
	s.joined++
	s.members = append(s.members, driver.Member{Identity: identity, Weight: 100, List: s.shards.Digest})
	s.nodes = append(s.nodes, NewNode(identity, Rules{MinStay: 10 * look, Patience: 3 * look, MovesPerSecond: 100}, s.shards, s.now))
	return len(s.members) - 1
}

// leave ends a member and returns how many shards it had.
func (s *simulation) leave(m int) (had int) {
	identity := s.members[m].Identity
	s.members, s.nodes = slices.Delete(slices.Clone(s.members), m, m+1), slices.Delete(s.nodes, m, m+1)
	for i, owner := range s.owners {
		if owner == identity {
			s.owners[i] = ""
			had++
		}
	}
	return had
}

func (s *simulation) sight() *View {
	index := map[string]int32{"": Nobody}
	for m, member := range s.members {
		index[member.Identity] = int32(m)
	}
	owners := make([]int32, len(s.owners))
	for i, owner := range s.owners {
		owners[i] = index[owner]
	}
	return NewView(s.members, owners)
}

// settle runs steps until one changes nothing. fresh is the part of the nodes that see the last
// moment; the others see the step before.
func (s *simulation) settle(tb testing.TB, fresh float64) (steps, claims int) {
	tb.Helper()
	s.now += time.Minute // what came long ago may move
	before := s.sight()
	for did := true; did || fresh < 1 && slices.Contains(s.owners, ""); steps++ {
		require.Less(tb, steps, 100)
		s.now += look
		did = false
		now := s.sight()
		for m, node := range s.nodes {
			v := now
			if s.random.Float64() >= fresh {
				v = before
			}
			d := node.Step(s.now, v)
			did = did || len(d.Claim)+len(d.Give) > 0
			for _, i := range d.Give {
				s.owners[i] = ""
				node.Gone(i)
			}
			for _, i := range d.Claim {
				if s.owners[i] == "" {
					s.owners[i] = s.members[m].Identity
					node.Owned(i, s.now)
					claims++
				}
			}
		}
		before = now
	}
	return steps - 1, claims
}
