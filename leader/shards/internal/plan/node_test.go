//go:build !race

package plan

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/pglatch/pglatch/leader/shards/driver"
)

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
