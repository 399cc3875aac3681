//go:build linux

package electiontest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
)

const (
	roundsVariable = "PGLATCH_ROUNDS" // how many rounds; 20 without it
	seedVariable   = "PGLATCH_SEED"   // repeats the faults of a run
)

// A Ground is where an election lives, and what can happen there.
type Ground struct {
	// Least and Most are how many nodes play.
	Least, Most int
	// Join prepares a node: the Role and Settings of its Job, and its Proxy.
	Join func(n *Node)
	// Faults happen to leaders, each as often as the others.
	Faults []Fault
	// Also are those that can happen to another node at the same time. Its bounds are
	// added: that node may have just begun to lead.
	Also []Fault
	// Free reports that nothing is held, after all nodes have stopped. nil = not known.
	Free func() bool
}

// An Arena is a ground, and the nodes that stand for election there.
type Arena struct {
	T      *testing.T
	Random *rand.Rand
	Nodes  []*Node // of the game

	ground  Ground
	witness *witness
	last    leader.Term       // of games before
	woken   map[int]time.Time // nodes that were stopped
	late    []string          // acts that nothing excuses

	events, counts map[string]int
	tally          map[string]*tally // by fault
	rounds, slow   int               // slow took longer than the bound without generosity
}

// A tally is what rounds of one fault came to.
type tally struct {
	count, survived int
	longest         time.Duration // until somebody led again
	overlap         time.Duration // of late acts
}

// NewArena opens a ground that is closed at the end of the test.
func NewArena(t *testing.T, g Ground) *Arena {
	t.Helper()
	seed := uint64(number(t, seedVariable, int(time.Now().UnixNano()&0xffffffff)))
	t.Logf("%s=%d", seedVariable, seed)
	return &Arena{
		T: t, Random: rand.New(rand.NewPCG(seed, 0)), ground: g, witness: newWitness(t),
		woken: make(map[int]time.Time), events: make(map[string]int), counts: make(map[string]int), tally: make(map[string]*tally),
	}
}

// Rounds is how many rounds are played.
func Rounds(t *testing.T) int {
	t.Helper()
	return number(t, roundsVariable, 20)
}

// number is a variable's value.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, variable)
	return n
}

// Open starts a game of n nodes, whose jobs set may change, and waits until all take
// part.
func (a *Arena) Open(n int, set func(*Job)) {
	a.T.Helper()
	a.witness.begin("")
	a.Nodes = nil
	clear(a.woken)
	for i := range n {
		node := NewNode(a.T, Job{Node: i, Witness: a.witness.address()})
		set(&node.Job)
		a.ground.Join(node)
		node.Start()
		a.Nodes = append(a.Nodes, node)
	}
	for _, node := range a.Nodes {
		node.awaitStanding(0, a.witness.leads)
	}
	a.last = a.witness.awaitTerm(a.T, a.last).term
}

// Close ends a game: all nodes stop in good order, and nothing is held.
func (a *Arena) Close() {
	a.T.Helper()
	a.witness.begin(retired)
	for _, node := range a.Nodes {
		node.tell(tellStop)
	}
	for _, node := range a.Nodes {
		node.exit()
		assert.Empty(a.T, node.log.faulty, "node %d", node.Job.Node)
		for word, n := range node.log.said {
			a.events[word] += n
		}
		for name, n := range node.log.counts {
			a.counts[name] += n
		}
	}
	if a.ground.Free != nil {
		require.Eventually(a.T, a.ground.Free, Patience, time.Millisecond, "something is held")
	}
	a.judge()
	a.last = a.witness.begin("").term
}

// Count is the sum of what nodes of closed games counted under a name.
func (a *Arena) Count(name string) int { return a.counts[name] }

// Late tells of acts that nothing excuses.
func (a *Arena) Late() []string { return a.late }

// tallyOf returns that of a fault.
func (a *Arena) tallyOf(fault string) *tally {
	if a.tally[fault] == nil {
		a.tally[fault] = new(tally)
	}
	return a.tally[fault]
}

// judge looks at what was late until now.
func (a *Arena) judge() {
	a.T.Helper()
	acts, faulty := a.witness.drain()
	assert.Empty(a.T, faulty)
	for _, l := range acts {
		t := a.tallyOf(l.successor.after)
		t.overlap = max(t.overlap, l.by())
		if !a.excused(l) {
			a.late = append(a.late, l.String())
		}
	}
}

// excused reports whether an act may be late: see Fault.Notice. A process can
// be stopped between its last look at its context and the act.
func (a *Arena) excused(l late) bool {
	woken := a.woken[l.node]
	if l.looked.Before(woken) && l.at.After(woken) {
		return true
	}
	for _, f := range a.ground.Faults {
		if f.Name == l.successor.after {
			return l.by() <= f.Notice
		}
	}
	return false
}
