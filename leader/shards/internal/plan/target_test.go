//go:build !race

package plan

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pglatch/pglatch/leader/shards/driver"
)

func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%06d", prefix, i)
	}
	return all
}

func nobody(n int) []int32 { return slices.Repeat([]int32{Nobody}, n) }

// crowd has members of these weights.
func crowd(s *Shards, weights ...int) []driver.Member {
	members := make([]driver.Member, len(weights))
	for i, identity := range names("node-", len(weights)) {
		members[i] = driver.Member{Identity: identity, Weight: weights[i], List: s.Digest}
	}
	return members
}

func everybody(n int) (active, leaving []bool) {
	return slices.Repeat([]bool{true}, n), make([]bool, n)
}

func counts(targets []int32, members int) []int {
	n := make([]int, members)
	for _, t := range targets {
		n[t]++
	}
	return n
}

func moves(from, to []int32) (n int) {
	for i := range from {
		if from[i] != to[i] {
			n++
		}
	}
	return n
}

// The numbers are the contract between nodes of different versions: they never change.
func TestTheHashIsWhatItWas(t *testing.T) {
	t.Parallel()
	assert.Equal(t, uint64(0xba7816bf8f01cfea), Hash("abc"), "the begin of its SHA-256")
	assert.Equal(t, uint64(0x5692161d100b05e5), mix(1), "SplitMix64's finalizer")
	for hash, want := range map[uint64]uint64{
		math.MaxUint64:    1,
		1<<63 - 1:         1 << depthBits, // log2(1/2)
		1<<62 - 1:         2 << depthBits,
		0:                 64 << depthBits,
		3<<62 - 1:         1782572487, // log2(4/3)
		1<<63 + 1<<61 - 1: 2912296657, // log2(8/5)
	} {
		assert.Equal(t, want, depth(hash), "%x", hash)
	}
}

func TestDepthsAreLogarithms(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		hash := rapid.Uint64().Draw(t, "hash")
		u, _ := new(big.Float).SetUint64(hash).Float64()
		assert.InDelta(t, -math.Log2((u+1)/math.Pow(2, 64)), float64(depth(hash))/(1<<depthBits), 1e-9)
		other := rapid.Uint64().Draw(t, "other")
		if hash > other {
			assert.LessOrEqual(t, depth(hash), depth(other))
		}
	})
}

func TestScoresHaveOneOrder(t *testing.T) {
	t.Parallel()
	some := rapid.Custom(func(t *rapid.T) score {
		return score{rapid.Uint64Range(1, 10_000).Draw(t, "weight"), rapid.Uint64().Draw(t, "hash")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := some.Draw(t, "a"), some.Draw(t, "b"), some.Draw(t, "c")
		assert.NotEqual(t, a.beats(b), b.beats(a) || a == b)
		if a.beats(b) && b.beats(c) {
			assert.True(t, a.beats(c))
		}
	})
}

func TestTheHighestScoreGoesByWeight(t *testing.T) {
	t.Parallel()
	const n = 60_000
	wins := make([]int, 3)
	for shard := range uint64(n) {
		best := 0
		for m := 1; m < 3; m++ {
			if scoreOf(Hash(fmt.Sprint(m)), mix(shard), m+1).beats(scoreOf(Hash(fmt.Sprint(best)), mix(shard), best+1)) {
				best = m
			}
		}
		wins[best]++
	}
	for m, won := range wins {
		assert.InDelta(t, n*(m+1)/6, won, 5*math.Sqrt(n/4), "binomial, five deviations")
	}
}

func TestEachMemberGetsItsFairPartRoundedDownOrUpAndNothingElseMoves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := NewShards(names("s", rapid.IntRange(0, 200).Draw(t, "shards")))
		weights := rapid.SliceOfN(rapid.IntRange(1, 300), 1, 12).Draw(t, "weights")
		owners := rapid.SliceOfN(rapid.Int32Range(Nobody, int32(len(weights)-1)), len(s.Names), len(s.Names)).Draw(t, "owners")
		v := NewView(crowd(s, weights...), owners)
		active, leaving := everybody(len(weights))

		target := targets(s, v, roles{active: active, leaving: leaving})
		total, held := 0, make([]int, len(weights))
		for _, w := range weights {
			total += w
		}
		free := 0
		for _, o := range owners {
			if o == Nobody {
				free++
			} else {
				held[o]++
			}
		}
		must := free
		for m, got := range counts(target, len(weights)) {
			fair := len(s.Names) * weights[m]
			assert.GreaterOrEqual(t, got, fair/total)
			assert.LessOrEqual(t, got, (fair+total-1)/total)
			must += max(held[m]-got, 0)
		}
		assert.Equal(t, must, moves(owners, target))
		assert.Equal(t, target, targets(s, NewView(v.Members, target), roles{active: active, leaving: leaving}), "it is settled then")
	})
}

func TestAJoinAndALeaveMoveThePartOfThatMember(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "shards")
		m := rapid.IntRange(2, 12).Draw(t, "members")
		s := NewShards(names("s", n))
		members := crowd(s, slices.Repeat([]int{100}, m)...)
		gone := rapid.IntRange(0, m-1).Draw(t, "gone")
		active, leaving := everybody(m)
		active[gone] = false
		before := targets(s, NewView(members, nobody(n)), roles{active: active, leaving: leaving})
		active[gone] = true
		joined := targets(s, NewView(members, before), roles{active: active, leaving: leaving})
		assert.LessOrEqual(t, moves(before, joined), (n+m-1)/m, "a join")

		active[gone], leaving[gone] = false, true
		left := targets(s, NewView(members, joined), roles{active: active, leaving: leaving})
		assert.LessOrEqual(t, moves(joined, left), (n+m-1)/m, "a leave")
		assert.NotContains(t, left, int32(gone))
	})
}

func TestPinnedShardsGoWhereTheyArePinnedAndTheRestIsEvenedOut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, m := rapid.IntRange(1, 100).Draw(t, "shards"), rapid.IntRange(1, 6).Draw(t, "members")
		s := NewShards(names("s", n))
		v := NewView(crowd(s, slices.Repeat([]int{100}, m)...), rapid.SliceOfN(rapid.Int32Range(Stranger, int32(m-1)), n, n).Draw(t, "owners"))
		v.Pins = rapid.SliceOfN(rapid.Int32Range(Nobody, int32(m-1)), n, n).Draw(t, "pins")
		active, leaving := everybody(m)
		if m > 1 {
			active[0] = rapid.Bool().Draw(t, "active")
			leaving[0] = !active[0] && rapid.Bool().Draw(t, "leaving")
		}
		target := targets(s, v, roles{active: active, leaving: leaving})
		pinned, got := make([]int, m), make([]int, m)
		for i, to := range target {
			pin := v.Pins[i]
			if pin >= 0 && active[pin] {
				require.Equal(t, pin, to)
				pinned[pin]++
			}
			if v.Owners[i] == Nobody || v.Owners[i] >= 0 && leaving[v.Owners[i]] {
				require.GreaterOrEqual(t, to, int32(0), "somebody takes it")
				require.True(t, active[to])
			}
			if to >= 0 {
				got[to]++
			}
		}
		least, most := math.MaxInt, 0
		for i := range m {
			if active[i] && got[i] > pinned[i] {
				most = max(most, got[i])
			}
			if active[i] {
				least = min(least, got[i])
			}
		}
		assert.LessOrEqual(t, most, least+1)
	})
}

func TestWhatStrangersAndMembersWithAnotherListOwnStays(t *testing.T) {
	t.Parallel()
	s := NewShards(names("s", 9))
	v := NewView(crowd(s, 100, 100), []int32{Stranger, Stranger, 1, 1, 1, 1, Nobody, Nobody, Nobody})
	target := targets(s, v, roles{active: []bool{true, false}, leaving: []bool{false, false}})
	assert.Equal(t, []int32{Stranger, Stranger, 1, 1, 1, 1, 0, 0, 0}, target)
	target = targets(s, v, roles{active: []bool{false, false}, leaving: []bool{true, true}})
	assert.Equal(t, v.Owners, target, "with nobody to take it, nobody gives")
}

func TestNothingMovesForARounding(t *testing.T) {
	t.Parallel()
	s := NewShards(names("s", 3))
	active, leaving := everybody(2)
	for _, owners := range [][]int32{{0, 0, 1}, {1, 1, 0}} {
		assert.Equal(t, owners, targets(s, NewView(crowd(s, 100, 100), owners), roles{active: active, leaving: leaving}))
	}
}

func TestANodeKnowsBetterThanAViewWhatItOwns(t *testing.T) {
	t.Parallel()
	s := NewShards(names("s", 4))
	seen := driver.View{
		Members: []driver.Member{{Identity: "a", Weight: 1, List: s.Digest}, {Identity: "b", Weight: 1, List: s.Digest}},
		Owners:  map[string]string{},
	}
	n := NewNode("a", rules, s, 0)
	assert.Equal(t, Decision{}, n.Step(0, s.View(driver.View{Members: seen.Members[1:]})), "it is no member yet")
	for i := range s.Names {
		n.Owned(i, 0)
	}
	d := n.Step(rules.MinStay-1, s.View(seen))
	assert.Equal(t, Decision{}, d, "what it owns is not claimed again, and stays for a while")
	d = n.Step(rules.MinStay, s.View(seen))
	assert.Len(t, d.Give, 2, "though the view says that it owns nothing")
	assert.Empty(t, n.Step(rules.MinStay, s.View(seen)).Give, "it is being given up")

	for _, i := range d.Give {
		n.Gone(i)
		seen.Owners[s.Names[i]] = "a"
	}
	assert.Equal(t, Decision{}, n.Step(rules.MinStay, s.View(seen)), "released a moment ago: it is for others")
}

func TestANewListKeepsWhatIsOwnedAndForgetsTheRest(t *testing.T) {
	t.Parallel()
	before, after := NewShards([]string{"a", "b"}), NewShards([]string{"0", "b", "b"})
	assert.Equal(t, []string{"0", "b"}, after.Names)
	assert.NotEqual(t, before.Digest, after.Digest)
	assert.Equal(t, NewShards([]string{"b", "a"}).Digest, before.Digest, "in any order")
	n := NewNode("me", rules, before, 0)
	n.Owned(0, 0)
	n.Owned(1, 0)
	n.SetShards(after)
	d := n.Step(0, after.View(driver.View{Members: []driver.Member{{Identity: "me", Weight: 1, List: after.Digest}}}))
	assert.Equal(t, Decision{Claim: []int{0}}, d)
}

// Its session died, and the server does not know yet: it tries until it does.
func TestWhatANodeIsSeenToOwnAndDoesNotIsClaimed(t *testing.T) {
	t.Parallel()
	s := NewShards(names("s", 2))
	seen := driver.View{
		Members: []driver.Member{{Identity: "a", Weight: 1, List: s.Digest}},
		Owners:  map[string]string{s.Names[0]: "a", s.Names[1]: "a"},
	}
	n := NewNode("a", rules, s, 0)
	n.Owned(1, 0)
	assert.Equal(t, Decision{Claim: []int{0}}, n.Step(0, s.View(seen)))
}

// Nodes that hear of a release at different times agree who claims what.
func TestAReleaseChangesNoTarget(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := NewShards(names("s", rapid.IntRange(1, 100).Draw(t, "shards")))
		r := roles{active: []bool{true, true, false}, leaving: []bool{false, false, true}}
		before := rapid.SliceOfN(rapid.Int32Range(0, 2), len(s.Names), len(s.Names)).Draw(t, "owners")
		after := slices.Clone(before)
		for i, owner := range after {
			if owner == 2 && rapid.Bool().Draw(t, "released") {
				after[i] = Nobody
			}
		}
		members := crowd(s, 100, 100, 100)
		assert.Equal(t, targets(s, NewView(members, before), r), targets(s, NewView(members, after), r))
	})
}
