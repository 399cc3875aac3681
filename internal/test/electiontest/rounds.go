//go:build linux

package electiontest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/tally"
)

// perGame is the number of rounds with the same nodes.
const perGame = 5

// Play plays Rounds rounds on a setup. It checks that no term outlives its end, whatever hits
// leaders, and that a node soon leads again.
func Play(t *testing.T, s Setup) *Cluster {
	t.Helper()
	c := NewCluster(t, s)
	rounds := Rounds(t)
	var bag []Fault
	for c.rounds < rounds {
		c.Open(s.Least+c.Random.IntN(s.Most-s.Least+1), func(j *Job) {
			j.Stubborn = c.Random.IntN(3) > 0
			j.Grace = time.Duration(c.Random.IntN(2)) * Lease
		})
		for range min(perGame, rounds-c.rounds) {
			c.Round(c.draw(&bag))
		}
		c.Close()
	}
	c.summary()
	_, refused, stale := c.Terms.Fenced()
	assert.Empty(t, c.late, "operations in a term, after the first operation of a later one")
	assert.Empty(t, stale, "accepted by the fence")
	if rounds >= 20 {
		assert.Positive(t, refused, "nobody went on after the end of a term")
	}
	return c
}

// Control plays rounds of a fault with leaders that do not check their context, and with an open
// fence: both checkers must find errors.
func Control(t *testing.T, s Setup, f Fault) {
	t.Helper()
	c := NewCluster(t, s)
	c.Terms.OpenFences()
	c.Open(max(s.Least, 3), func(j *Job) { j.Stubborn, j.Reckless = true, true })
	var stale []string
	for round := 0; len(c.late) == 0 || len(stale) == 0; round++ {
		require.Less(t, round, 20, "nothing went wrong: the checkers see nothing")
		c.Round(f)
		_, _, stale = c.Terms.Fenced()
	}
	c.Close()
	t.Logf("control: %d operations too late, such as: %s", len(c.late), c.late[0])
	tally.Control(t, "%d operations too late, such as: %s", len(c.late), c.late[0])
	t.Logf("control: %d stale operations accepted by an open fence, such as: %s", len(stale), stale[0])
}

// draw takes a fault that fits the leader from a bag that contains each fault once.
func (c *Cluster) draw(bag *[]Fault) Fault {
	leads := c.Nodes[c.latest().Node].Job
	i := slices.IndexFunc(*bag, func(f Fault) bool { return f.fits(leads) })
	if i < 0 {
		for _, j := range c.Random.Perm(len(c.setup.Faults)) {
			*bag = append(*bag, c.setup.Faults[j])
		}
		i = slices.IndexFunc(*bag, func(f Fault) bool { return f.fits(leads) })
	}
	f := (*bag)[i]
	*bag = slices.Delete(*bag, i, i+1)
	return f
}

// Round applies a fault to the leader and waits until there is a new leader, and the old one is
// back.
func (c *Cluster) Round(f Fault) {
	c.T.Helper()
	<-time.After(time.Duration(c.Random.Int64N(int64(200 * time.Millisecond))))
	before := c.Terms.During(f.Name)[0]
	affected := []*Node{c.Nodes[before.Node]}
	if f.Outage {
		affected = c.Nodes
	}
	began := time.Now()
	undo := c.strike(f, c.Nodes[before.Node])
	bound := f.Bound
	also, other, undoAlso := c.strikeAnother(before.Node)
	if other != nil {
		affected = append(slices.Clone(affected), other)
		bound = func(noise int) time.Duration { return f.Bound(noise) + also.Bound(noise) }
	}
	if f.Outage {
		began = time.Now()
	}
	var after judge.Tenure
	if f.Survivable {
		after = c.awaitOperation(began)
	} else {
		after = c.awaitTerm(before.Term)
	}
	took := max(after.Began.Sub(began), 0)
	standing := make([]int, len(affected))
	for i, node := range affected {
		standing[i] = node.standing()
	}
	undo()
	undoAlso()
	for i, node := range affected {
		node.awaitStanding(standing[i], c.leads)
	}
	c.note(f, before, after, took, bound)
	if other == nil {
		c.statsOf(f.Name).longest = max(c.statsOf(f.Name).longest, took)
	}
	c.Check()
	c.T.Logf("%d nodes: node %d, term %v, %s (another: %s); node %d leads after %v",
		len(c.Nodes), before.Node, before.Term, f.Name, cmp.Or(also.Name, "well"), after.Node, took.Round(time.Millisecond))
}

// strike applies a fault to a node, and writes that to the run.
func (c *Cluster) strike(f Fault, n *Node) (undo func()) {
	who := n.Job.IdentityOf(n.PID())
	if f.Outage {
		who = ""
	}
	ends := c.setup.Run.Fault(who, f.Name)
	repair := f.Strike(c, n)
	return func() {
		repair()
		ends()
	}
}

// strikeAnother sometimes applies a fault to a node that follows, or has just begun to lead. Its
// bounds are the longest of all possible faults.
func (c *Cluster) strikeAnother(leads int) (f Fault, n *Node, undo func()) {
	if len(c.Nodes) <= 2 || len(c.setup.Also) == 0 || c.Random.IntN(3) != 0 {
		return f, nil, func() {}
	}
	f = c.setup.Also[c.Random.IntN(len(c.setup.Also))]
	n = c.Nodes[(leads+1+c.Random.IntN(len(c.Nodes)-1))%len(c.Nodes)]
	if !f.fits(n.Job) {
		return Fault{}, nil, func() {}
	}
	undo = c.strike(f, n)
	for _, other := range c.setup.Also {
		f.Fixed, f.Quick = max(f.Fixed, other.Fixed), max(f.Quick, other.Quick)
	}
	return f, n, undo
}

// note records a round.
func (c *Cluster) note(f Fault, before, after judge.Tenure, took time.Duration, bound func(int) time.Duration) {
	c.T.Helper()
	assert.LessOrEqual(c.T, took, bound(20), "until somebody led again: %s", f.Name)
	c.rounds++
	t := c.statsOf(f.Name)
	t.count++
	if after.Term == before.Term {
		t.survived++
	}
	if took > bound(1) {
		c.slow++
	}
}

func (c *Cluster) summary() {
	terms, operations, lost := c.Terms.Total()
	accepted, refused, stale := c.Terms.Fenced()
	c.T.Logf("%d rounds, %d terms, %d operations (%d more were lost on the way)", c.rounds, terms, operations, lost)
	c.T.Logf("fence: %d operations accepted, %d of them stale, %d refused", accepted, len(stale), refused)
	c.T.Logf("events: %v; counts: %v", c.events, c.counts)
	tallyTotals(c.T, c.rounds, terms, operations, refused)
	for _, f := range c.setup.Faults {
		t := c.statsOf(f.Name)
		tally.Faults(c.T, tally.Fault{Name: f.Name, Times: t.count, Freed: t.longest, Bound: f.Bound(1), Overlap: new(t.overlap)})
		c.T.Logf("%-14s %3d times (%d survived): led again after %8v at most (bound %v), late operations by %v at most", f.Name, t.count,
			t.survived, t.longest.Round(time.Millisecond), f.Bound(1), t.overlap.Round(10*time.Microsecond))
	}
	if c.slow > 0 {
		c.T.Logf("NOTE: %d takeovers took longer than their bound", c.slow)
	}
}

func tallyTotals(t *testing.T, rounds, terms, operations, refused int) {
	t.Helper()
	tally.Count(t, "rounds", rounds)
	tally.Count(t, "terms", terms)
	tally.Count(t, "operations", operations)
	tally.Count(t, "refused by a fence", refused)
}
