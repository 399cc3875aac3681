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
	// Free reports that no lock is held, after all nodes have stopped. nil = unknown.
	Free func() bool
}

// A Cluster is a setup, and its candidate nodes.
type Cluster struct {
	T      *testing.T
	Random *rand.Rand
	Nodes  []*Node // of the current game

	setup    Setup
	observer *observer
	last     leader.Term       // of earlier games
	woken    map[int]time.Time // when suspended nodes were continued
	late     []string          // operations without an excuse

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
	return &Cluster{
		T: t, Random: NewRandom(t), setup: s, observer: newObserver(t),
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
	c.observer.begin("")
	c.Nodes = nil
	clear(c.woken)
	for i := range n {
		node := NewNode(c.T, Job{Node: i, Observer: c.observer.address()})
		set(&node.Job)
		c.setup.Join(node)
		node.Start()
		c.Nodes = append(c.Nodes, node)
	}
	for _, node := range c.Nodes {
		node.awaitStanding(0, c.observer.leads)
	}
	c.last = c.observer.awaitTerm(c.T, c.last).term
}

// Close ends a game: all nodes stop in good order, and no lock is held.
func (c *Cluster) Close() {
	c.T.Helper()
	c.observer.begin(retired)
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
		require.Eventually(c.T, c.setup.Free, Patience, time.Millisecond, "something is held")
	}
	c.check()
	c.last = c.observer.begin("").term
}

// Count returns the total that nodes of closed games counted under a name.
func (c *Cluster) Count(name string) int { return c.counts[name] }

// Late returns the operations without an excuse.
func (c *Cluster) Late() []string { return c.late }

// statsOf returns the statistics of a fault.
func (c *Cluster) statsOf(fault string) *faultStats {
	if c.stats[fault] == nil {
		c.stats[fault] = new(faultStats)
	}
	return c.stats[fault]
}

// check evaluates the late operations so far.
func (c *Cluster) check() {
	c.T.Helper()
	operations, faulty := c.observer.drain()
	assert.Empty(c.T, faulty)
	for _, l := range operations {
		t := c.statsOf(l.successor.after)
		t.overlap = max(t.overlap, l.by())
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
func (c *Cluster) excused(l lateOperation) bool {
	woken := c.woken[l.node]
	if l.looked.Before(woken) && l.at.After(woken) {
		return true
	}
	if l.looked.Before(l.successor.began) && l.at.Sub(l.looked) > stall {
		return true
	}
	for _, f := range c.setup.Faults {
		if f.Name == l.successor.after {
			return l.by() <= f.Notice
		}
	}
	return false
}
