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

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/replay"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/leader"
)

const (
	seedVariable = "PGLATCH_SEED" // repeats the faults of a run
)

// A Setup is the location of an election, and the faults that can occur there.
type Setup struct {
	// Least and Most bound the number of nodes.
	Least, Most int
	// Join prepares a node: the Role and Settings of its Job, and its Proxy.
	Join func(n *Node)
	// Faults hit leaders, each as often as the others.
	Faults []Fault
	// Also are the faults that can hit another node at the same time. Their bounds are added: that node may have just
	// begun to lead.
	Also []Fault
	// Run receives the faults, and the events of all nodes. nil = nothing is written.
	Run *replay.Run
	// Free reports that no lock is held, after all nodes have stopped. nil = unknown.
	Free func() bool
}

// A Cluster is a setup, and its candidate nodes.
type Cluster struct {
	T      *testing.T
	Random *rand.Rand
	Nodes  []*Node      // of the current game
	Terms  *judge.Terms // the operations of all games

	setup Setup
	queue *queue
	last  leader.Term       // of earlier games
	woken map[int]time.Time // when suspended nodes were continued
	late  []string          // operations without an excuse

	events, counts map[string]int
	stats          map[string]*faultStats // by fault
	rounds, slow   int                    // slow rounds took longer than the bound without generosity
}

// faultStats is the result of the rounds with one fault.
type faultStats struct {
	count, survived int
	longest         time.Duration // until another node led
	overlap         time.Duration // of late operations
}

// NewCluster opens a setup that is closed at the end of the test.
func NewCluster(t *testing.T, s Setup) *Cluster {
	t.Helper()
	terms := judge.NewTerms()
	return &Cluster{
		T: t, Random: NewRandom(t), Terms: terms, setup: s,
		queue: newQueue(t, judge.OperationSize, func(b []byte, at time.Time) { terms.See(judge.Decode(b, at)) }),
		woken: make(map[int]time.Time), events: make(map[string]int), counts: make(map[string]int), stats: make(map[string]*faultStats),
	}
}

// NewRandom returns a source whose seed is logged, and can be set: see PGLATCH_SEED. In the short form the seed is
// always the same, so that a run repeats. In the long form it is new.
func NewRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(number(t, seedVariable, soak.Size(t, 1, int(time.Now().UnixNano()&0xffffffff))))
	t.Logf("%s=%d", seedVariable, seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Rounds is the number of rounds to play.
func Rounds(t *testing.T) int {
	t.Helper()
	return soak.Size(t, 12, 200)
}

// number returns a variable's value.
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

// Open starts a game of n nodes, whose jobs set may change, and waits until all take part.
func (c *Cluster) Open(n int, set func(*Job)) {
	c.T.Helper()
	c.Start(n, set)
	for _, node := range c.Nodes {
		node.awaitStanding(0, c.leads)
	}
	c.last = c.awaitTerm(c.last).Term
}

// Start starts a game of n nodes, whose jobs set may change.
func (c *Cluster) Start(n int, set func(*Job)) {
	c.T.Helper()
	c.Terms.During("")
	c.Nodes = nil
	clear(c.woken)
	for i := range n {
		node := NewNode(c.T, Job{Node: i, Observer: "udp4 " + c.queue.address(), Trace: c.setup.Run.Path()})
		c.setup.Join(node)
		set(&node.Job)
		node.Start()
		c.Nodes = append(c.Nodes, node)
	}
}

// Close ends a game: all nodes stop in good order, and no lock is held.
func (c *Cluster) Close() {
	c.T.Helper()
	c.Terms.During(retired)
	for _, node := range c.Nodes {
		node.tell(tellStop)
	}
	for _, node := range c.Nodes {
		node.Exit()
		assert.Empty(c.T, node.log.faulty, "node %d", node.Job.Node)
		for word, n := range node.log.said {
			c.events[word] += n
		}
		for name, n := range node.log.counts {
			c.counts[name] += n
		}
	}
	if c.setup.Free != nil {
		await.Until(c.T, Patience, c.setup.Free, "something is held")
	}
	c.Check()
	c.last = c.latest().Term
}

// latest returns the latest leadership of an election.
func (c *Cluster) latest() judge.Tenure { return c.Terms.Latest()[0] }

// leads reports whether a node is the latest that began to lead.
func (c *Cluster) leads(node int) bool {
	r := c.latest()
	return !r.Term.IsZero() && r.Node == node
}

// awaitTerm waits for the first operation of a later term.
func (c *Cluster) awaitTerm(after leader.Term) judge.Tenure {
	c.T.Helper()
	await.Until(c.T, Patience, func() bool { return c.latest().Term.Compare(after) > 0 }, "nobody leads after term %v", after)
	return c.latest()
}

// awaitOperation waits for an operation of the latest term after a given time.
func (c *Cluster) awaitOperation(after time.Time) judge.Tenure {
	c.T.Helper()
	await.Until(c.T, Patience, func() bool { return c.latest().Last.After(after) }, "nobody leads")
	return c.latest()
}

// Count returns the total that nodes of closed games counted under a name.
func (c *Cluster) Count(name string) int { return c.counts[name] }

// Late returns the operations without an excuse.
func (c *Cluster) Late() []string { return c.late }

// Overlap is the longest time by which an operation was late that followed a fault.
func (c *Cluster) Overlap(fault string) time.Duration { return c.statsOf(fault).overlap }

// statsOf returns the statistics of a fault.
func (c *Cluster) statsOf(fault string) *faultStats {
	if c.stats[fault] == nil {
		c.stats[fault] = new(faultStats)
	}
	return c.stats[fault]
}

// Check evaluates the operations so far.
func (c *Cluster) Check() {
	c.T.Helper()
	late, shared := c.Terms.Drain()
	assert.Empty(c.T, shared)
	for _, l := range late {
		t := c.statsOf(l.Successor.After)
		t.overlap = max(t.overlap, l.By())
		if !c.excused(l) {
			c.late = append(c.late, l.String())
		}
	}
}

// stall: an act later than this after its check means that the process was stopped in between.
const stall = 50 * time.Millisecond

// excused reports whether an operation may be late: see Fault.Notice. A process can be stopped between its last check
// of its context and the act: by a signal, or for a while by a machine that is too busy. In that case the check was
// before any other node led.
func (c *Cluster) excused(l judge.Late) bool {
	woken := c.woken[l.Node]
	if l.Looked.Before(woken) && l.At.After(woken) {
		return true
	}
	if l.Looked.Before(l.Successor.Began) && l.At.Sub(l.Looked) > stall {
		return true
	}
	for _, f := range c.setup.Faults {
		if f.Name == l.Successor.After {
			return l.By() <= f.Notice || l.Nth <= f.Unnoticed
		}
	}
	return false
}
