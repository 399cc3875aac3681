//go:build linux

package electiontest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// perGame is how many rounds the same nodes play.
const perGame = 5

// Play plays the rounds that PGLATCH_ROUNDS says on a ground, and judges: no term
// outlives its end, whatever happens to leaders, and somebody leads again soon.
func Play(t *testing.T, g Ground) *Arena {
	t.Helper()
	a := NewArena(t, g)
	rounds := Rounds(t)
	var bag []Fault
	for a.rounds < rounds {
		a.Open(g.Least+a.Random.IntN(g.Most-g.Least+1), func(j *Job) {
			j.Stubborn = a.Random.IntN(3) > 0
			j.Grace = time.Duration(a.Random.IntN(2)) * Lease
		})
		for range min(perGame, rounds-a.rounds) {
			a.Round(a.draw(&bag))
		}
		a.Close()
	}
	a.summary()
	_, refused, stale := a.witness.verdict()
	assert.Empty(t, a.late, "acts in a term, after the first act of a later one")
	assert.Empty(t, stale, "accepted by the fence")
	if rounds >= 20 {
		assert.Positive(t, refused, "nobody went on after the end of a term")
	}
	return a
}

// Control plays rounds of a fault with leaders that do not look at their context, and
// an open fence: both judges must find what they look for.
func Control(t *testing.T, g Ground, f Fault) {
	t.Helper()
	a := NewArena(t, g)
	a.witness.openFence()
	a.Open(max(g.Least, 3), func(j *Job) { j.Stubborn, j.Reckless = true, true })
	var stale []string
	for round := 0; len(a.late) == 0 || len(stale) == 0; round++ {
		require.Less(t, round, 20, "nothing went wrong: the judges see nothing")
		a.Round(f)
		_, _, stale = a.witness.verdict()
	}
	a.Close()
	t.Logf("control: %d acts too late, such as: %s", len(a.late), a.late[0])
	t.Logf("control: %d stale acts accepted by an open fence, such as: %s", len(stale), stale[0])
}

// draw takes a fault that fits the leader from a bag, in which each is once.
func (a *Arena) draw(bag *[]Fault) Fault {
	leads := a.Nodes[a.witness.begin("").node].Job
	i := slices.IndexFunc(*bag, func(f Fault) bool { return f.fits(leads) })
	if i < 0 {
		for _, j := range a.Random.Perm(len(a.ground.Faults)) {
			*bag = append(*bag, a.ground.Faults[j])
		}
		i = slices.IndexFunc(*bag, func(f Fault) bool { return f.fits(leads) })
	}
	f := (*bag)[i]
	*bag = slices.Delete(*bag, i, i+1)
	return f
}

// Round makes a fault happen to the leader and waits until there is a new one, and
// the old one is back.
func (a *Arena) Round(f Fault) {
	a.T.Helper()
	<-time.After(time.Duration(a.Random.Int64N(int64(200 * time.Millisecond))))
	before := a.witness.begin(f.Name)
	affected := []*Node{a.Nodes[before.node]}
	if f.Outage {
		affected = a.Nodes
	}
	began := time.Now()
	undo := f.Strike(a, a.Nodes[before.node])
	bound := f.bound
	also, other, undoAlso := a.strikeAnother(before.node)
	if other != nil {
		affected = append(slices.Clone(affected), other)
		bound = func(noise int) time.Duration { return f.bound(noise) + also.bound(noise) }
	}
	if f.Outage {
		began = time.Now()
	}
	var after reign
	if f.Survivable {
		after = a.witness.awaitAct(a.T, began)
	} else {
		after = a.witness.awaitTerm(a.T, before.term)
	}
	took := max(after.began.Sub(began), 0)
	standing := make([]int, len(affected))
	for i, node := range affected {
		standing[i] = node.standing()
	}
	undo()
	undoAlso()
	for i, node := range affected {
		node.awaitStanding(standing[i], a.witness.leads)
	}
	a.note(f, before, after, took, bound)
	if other == nil {
		a.tallyOf(f.Name).longest = max(a.tallyOf(f.Name).longest, took)
	}
	a.judge()
	a.T.Logf("%d nodes: node %d, term %v, %s (another: %s); node %d leads after %v",
		len(a.Nodes), before.node, before.term, f.Name, cmp.Or(also.Name, "well"), after.node, took.Round(time.Millisecond))
}

// strikeAnother makes a fault happen, sometimes, to one that follows, or has just
// begun to lead. Its bounds are the longest of all that can happen.
func (a *Arena) strikeAnother(leads int) (f Fault, n *Node, undo func()) {
	if len(a.Nodes) <= 2 || len(a.ground.Also) == 0 || a.Random.IntN(3) != 0 {
		return f, nil, func() {}
	}
	f = a.ground.Also[a.Random.IntN(len(a.ground.Also))]
	n = a.Nodes[(leads+1+a.Random.IntN(len(a.Nodes)-1))%len(a.Nodes)]
	if !f.fits(n.Job) {
		return Fault{}, nil, func() {}
	}
	undo = f.Strike(a, n)
	for _, other := range a.ground.Also {
		f.Fixed, f.Quick = max(f.Fixed, other.Fixed), max(f.Quick, other.Quick)
	}
	return f, n, undo
}

// note counts a round.
func (a *Arena) note(f Fault, before, after reign, took time.Duration, bound func(int) time.Duration) {
	a.T.Helper()
	assert.LessOrEqual(a.T, took, bound(20), "until somebody led again: %s", f.Name)
	a.rounds++
	t := a.tallyOf(f.Name)
	t.count++
	if after.term == before.term {
		t.survived++
	}
	if took > bound(1) {
		a.slow++
	}
}

func (a *Arena) summary() {
	terms, acts, lost := a.witness.total()
	accepted, refused, stale := a.witness.verdict()
	a.T.Logf("%d rounds, %d terms, %d acts (%d more were lost on the way)", a.rounds, terms, acts, lost)
	a.T.Logf("fence: %d acts accepted, %d of them stale, %d refused", accepted, len(stale), refused)
	a.T.Logf("events: %v; counts: %v", a.events, a.counts)
	for _, f := range a.ground.Faults {
		t := a.tallyOf(f.Name)
		a.T.Logf("%-14s %3d times (%d survived): led again after %8v at most (bound %v), late acts by %v at most", f.Name, t.count,
			t.survived, t.longest.Round(time.Millisecond), f.bound(1), t.overlap.Round(10*time.Microsecond))
	}
	if a.slow > 0 {
		a.T.Logf("NOTE: %d takeovers took longer than their bound", a.slow)
	}
}
