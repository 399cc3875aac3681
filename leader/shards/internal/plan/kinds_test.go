//go:build !race

package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// forgive has a node trust everybody again.
func (a *actor) forgive() {
	for _, o := range a.others {
		o.until, o.mistrust = never, 0
	}
	for i := range a.state {
		a.state[i].lay = 0
	}
}

// round lets each node look and act once.
func (w *world) round() {
	w.now += look
	for _, identity := range sorted(w.nodes) {
		w.act(identity, w.sight(), nil)
	}
}

// unowned counts the shards that nobody owns.
func (w *world) unowned() (n int) {
	for _, owner := range w.owners {
		if owner == "" {
			n++
		}
	}
	return n
}

func (w *world) load(identity string) (n int) {
	for _, owner := range w.owners {
		if owner == identity {
			n++
		}
	}
	return n
}

// probes is how many shards nodes move in so many rounds to members that hang, at most, when these are left out for the longest time.
func (w *world) probes(rounds int) int {
	hang := 0
	for _, a := range w.nodes {
		if a.hangs {
			hang++
		}
	}
	rest := int(maxMistrust * max(w.rules.MinStay, w.rules.Patience) / look)
	return hang * (len(w.nodes) - hang) * (rounds/rest + 1)
}

// A steady world has nodes that share the shards evenly.
func steady(t *testing.T, rules Rules, shards int, identities ...string) *world {
	t.Helper()
	w := newWorld(NewShards(names("s", shards)))
	w.rules = rules
	for _, identity := range identities {
		w.join(identity)
	}
	w.settle(t, w.bound())
	w.assertEven(t)
	w.moves = 0
	return w
}

func TestANewcomerThatHangsGetsItsPartOnceAndThenOneShardNowAndThen(t *testing.T) {
	t.Parallel()
	for name, minStay := range map[string]time.Duration{"by default": rules.MinStay, "without MinStay": 0} {
		hour := func(t *testing.T, naive bool) (w *world, unowned int) {
			t.Helper()
			w = steady(t, Rules{MinStay: minStay, Patience: rules.Patience, MovesPerSecond: 100}, 300, "a", "b", "c")
			w.naive = naive
			w.join("hangs")
			w.nodes["hangs"].hangs = true
			for range 720 {
				w.round()
				unowned += w.unowned()
			}
			return w, unowned
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, unowned := hour(t, false)
			assert.LessOrEqual(t, w.moves, 75+w.probes(720)+3*5, "its part, and what it is tried with")
			assert.Less(t, float64(unowned)/(300*720), 0.01, "how much of the time a shard has no owner")
			t.Logf("%d moves, %.2f %% unowned", w.moves, float64(unowned)/(3*720))

			w.nodes["hangs"].hangs = false
			w.settle(t, w.bound())
			w.assertEven(t)
			w.die("hangs")
		})
		t.Run(name+", the control", func(t *testing.T) {
			t.Parallel()
			w, unowned := hour(t, true)
			assert.True(t, w.moves > 1000 || float64(unowned)/(300*720) > 0.05, "%d moves, %d unowned", w.moves, unowned)
		})
	}
}

func TestAMemberThatHangsKeepsNoFreeShardFromOthersWithoutMinStay(t *testing.T) {
	t.Parallel()
	w := steady(t, Rules{Patience: rules.Patience, MovesPerSecond: 100}, 300, "a", "b", "c", "gone", "hangs")
	w.nodes["hangs"].hangs = true
	w.die("gone")
	for range 20 {
		w.round()
	}
	assert.Zero(t, w.unowned())
}

// The work of a node ignores its context, so that it cannot claim again what it gave up.
func TestNobodyGivesAShardToAMemberThatRefusesIt(t *testing.T) {
	t.Parallel()
	play := func(t *testing.T, silent bool) (w *world, unowned int) {
		t.Helper()
		w = steady(t, rules, 60, "a", "b", "h")
		h := w.nodes["h"]
		h.refuses = map[string]bool{}
		for i, owner := range w.owners {
			if owner == "h" {
				h.refuses[w.shards.Names[i]] = true
			}
		}
		w.silent = silent
		h.draining = true
		for range 20 {
			w.round()
		}
		require.Zero(t, w.load("h"))
		h.draining = false
		w.moves = 0
		for range 400 {
			w.round()
			unowned = max(unowned, w.unowned())
		}
		return w, unowned
	}
	w, unowned := play(t, false)
	assert.LessOrEqual(t, unowned, 10, "what moves does so within a look, MovesPerSecond at a time from each of two")
	assert.Equal(t, 20, w.moves, "it gets its part of the others, once")
	w.assertEven(t)
	clear(w.nodes["h"].refuses)
	assert.Zero(t, w.settle(t, w.bound()), "and nothing moves when it can claim them again")

	w, unowned = play(t, true)
	assert.Greater(t, w.moves, 20, "the control: shards are given to it in vain, if it does not say so")
	assert.Less(t, w.moves, 100, "but not again and again")
	assert.Positive(t, unowned)
}

func TestAShardThatAllRefuseIsTriedByOneMemberAndNobodyIsMistrusted(t *testing.T) {
	t.Parallel()
	w := steady(t, rules, 30, "a", "b", "c")
	poison := w.shards.Names[7]
	for _, a := range w.nodes {
		a.refuses = map[string]bool{poison: true}
	}
	w.nodes[w.owners[7]].Gone(7)
	w.owners[7] = ""
	for range 60 {
		w.round()
	}
	assert.Equal(t, 1, w.unowned())
	for identity, a := range w.nodes {
		for other, o := range a.others {
			assert.Zero(t, o.mistrust, "%s mistrusts %s", identity, other)
		}
	}
	clear(w.nodes["b"].refuses)
	w.settle(t, w.bound())
	assert.Equal(t, "b", w.owners[7])
}

func TestAMemberThatCanClaimNothingKeepsWhatItHasAndGetsNothing(t *testing.T) {
	t.Parallel()
	w := steady(t, rules, 400, "a", "b")
	b := w.nodes["b"]
	b.refuses = map[string]bool{}
	for _, name := range w.shards.Names {
		b.refuses[name] = true // more than it can name
	}
	require.Equal(t, RefuseAll, w.shards.View(w.sight()).Members[1].Refuses)
	w.join("c")
	w.settle(t, w.bound())
	w.die("a")
	w.settle(t, w.bound())
	assert.Zero(t, w.unowned())
	kept := w.load("b")
	assert.Less(t, kept, 200, "it gives up what others can take")
	w.die("c")
	for range 60 {
		w.round()
	}
	assert.Equal(t, kept, w.load("b"))
	clear(b.refuses)
	w.settle(t, w.bound())
	w.assertEven(t)
}

func TestWhatRefusesAShardDoesNotGetItByAPinOrADrain(t *testing.T) {
	t.Parallel()
	s := NewShards(names("s", 4))
	members := crowd(s, 100, 100)
	members[1].Refuses = Refusals(s.Names[:1])
	v := NewView(members, []int32{0, 0, 0, 0})
	v.refusals = s.refusals(members)
	v.Pins = []int32{1, 1, Nobody, Nobody}
	target := targets(s, v, roles{active: []bool{true, true}, leaving: []bool{false, false}})
	assert.Equal(t, []int32{0, 1}, target[:2], "of two pinned ones")
	target = targets(s, v, roles{active: []bool{false, true}, leaving: []bool{true, false}})
	assert.Equal(t, []int32{0, 1, 1, 1}, target, "it drains, and keeps what nobody takes")
}

func TestRefusalsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	s := NewShards(names("s", 200))
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfNDistinct(rapid.IntRange(0, 199), 0, maxRefusals, rapid.ID[int]).Draw(t, "some")
		var list []string
		for _, i := range some {
			list = append(list, s.Names[i])
		}
		members := crowd(s, 100, 100)
		members[1].Refuses = Refusals(append(list, "no shard")[:min(len(list)+1, maxRefusals)])
		assert.LessOrEqual(t, len(members[1].Refuses), 2175)
		v := NewView(members, nobody(200))
		v.refusals = s.refusals(members)
		for i := range s.Names {
			assert.Equal(t, slices.Contains(some, i), v.refuses(1, i))
			assert.False(t, v.refuses(0, i))
		}
	})
	members := crowd(s, 100)
	for _, text := range []string{"x", ",", "-1", "ffffffffffffffffff"} {
		members[0].Refuses = text
		assert.Empty(t, s.refusals(members)[0].some, "%q", text)
	}
	assert.Equal(t, RefuseAll, Refusals(names("s", maxRefusals+1)))
}

// Members of all three kinds, beside one at least that is well: the shards are owned within a bound, what moves after
// that is what nodes try members with that hang, and when all are well again each has its part.
func TestWithMembersThatHangDrainAndRefuseAllIsOwnedAndLittleMoves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(NewShards(names("s", rapid.IntRange(0, 40).Draw(t, "shards"))))
		w.rules.MinStay = rapid.SampledFrom([]time.Duration{0, rules.MinStay}).Draw(t, "MinStay")
		trouble(t, w)
		kinds := map[string]int{}
		for _, identity := range sorted(w.nodes) {
			a := w.nodes[identity]
			a.draining = false
			switch kinds[identity] = rapid.IntRange(0, 3).Draw(t, identity); kinds[identity] {
			case 1:
				a.hangs = true
			case 2:
				a.draining = true
			case 3:
				a.refuses = map[string]bool{}
				for _, i := range rapid.SliceOf(rapid.IntRange(0, 39)).Draw(t, "refused by "+identity) {
					a.refuses[fmt.Sprintf("s%06d", i)] = true
				}
			}
		}
		w.join("well")
		for range w.bound() {
			w.round()
			require.Empty(t, w.twoOwners())
		}
		const window = 160
		w.moves = 0
		for range window {
			w.round()
			require.LessOrEqual(t, w.unowned(), w.probes(0), "%v", w.owners)
		}
		assert.LessOrEqual(t, w.moves, w.probes(window))
		least, most, refuse, hoarded, part := w.load("well"), w.load("well"), 0, 0, len(w.owners)/len(w.nodes)
		for identity, kind := range kinds {
			switch kind {
			case 0:
				least, most = min(least, w.load(identity)), max(most, w.load(identity))
			case 1: // what it has beyond its part, another lacks
				hoarded += max(0, w.load(identity)-part)
			case 2:
				assert.Zero(t, w.load(identity), "%s drains", identity)
			case 3:
				refuse++
			}
		}
		assert.LessOrEqual(t, most-least, 1+w.probes(0)+refuse+hoarded, "those that are well have equal parts, as far as the others let them")

		for _, a := range w.nodes {
			a.hangs, a.draining, a.refuses = false, false, nil
		}
		w.settle(t, w.bound())
		w.assertEven(t)
	})
}

// What a look costs a node when nothing has changed, and when another's shards are to be taken.
func BenchmarkStep(b *testing.B) {
	for _, members := range []int{3, 100} {
		sim := newSimulation(members, 10_000)
		sim.settle(b, 1)
		view, now := sim.sight(), sim.now
		b.Run(fmt.Sprintf("unchanged/members=%d", members), func(b *testing.B) {
			for b.Loop() {
				now += time.Second
				sim.nodes[0].Step(now, view)
			}
		})
		b.Run(fmt.Sprintf("a member is gone/members=%d", members), func(b *testing.B) {
			sim.leave(members - 1)
			for b.Loop() {
				now += time.Second
				sim.nodes[0].Step(now, sim.sight())
			}
		})
	}
}
