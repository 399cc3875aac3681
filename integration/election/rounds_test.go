//go:build integration

package election

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pgtest"
	"github.com/pglatch/pglatch/internal/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader"
)

const (
	roundsVariable = "PGLATCH_ROUNDS" // how many rounds; 20 without it
	seedVariable   = "PGLATCH_SEED"   // repeats the faults of a run
	perGame        = 5                // rounds that the same nodes play
	maxNodes       = 9
)

// An arena is a server, and the nodes that stand for election there.
type arena struct {
	random  *rand.Rand
	server  *pgserver.Server
	ledger  *ledger
	witness *witness
	nodes   []*node
	last    leader.Term // of games before
	woken   time.Time   // the process that was stopped last

	refused, committed, hidden int
	events                     map[string]int
	longest                    map[fault]time.Duration // until somebody leads again
	overlap                    map[fault]time.Duration // of late acts
	count                      map[fault]int
	slow                       int // takeovers that took longer than the bound without generosity
}

func newArena(t *testing.T) *arena {
	t.Helper()
	seed := uint64(number(t, seedVariable, int(time.Now().UnixNano()&0xffffffff)))
	t.Logf("%s=%d", seedVariable, seed)
	a := &arena{
		random:  rand.New(rand.NewPCG(seed, 0)),
		witness: newWitness(t), events: make(map[string]int), count: make(map[fault]int),
		longest: make(map[fault]time.Duration), overlap: make(map[fault]time.Duration),
	}
	a.server = pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"synchronous_commit": "on"}})
	a.ledger = newLedger(t, a.server.DSN(""))
	return a
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

// Whatever happens to leaders, no write of an ended term commits once another
// has begun, nobody acts in an ended term for longer than is stated, and somebody
// leads again soon.
func TestNoTermOutlivesItsEndWhateverHappensToLeaders(t *testing.T) {
	a := newArena(t)
	rounds := number(t, roundsVariable, 20)
	for done := 0; done < rounds; done += perGame {
		a.open(t, 2+a.random.IntN(maxNodes-1), func(j *job) {
			j.Stubborn = a.random.IntN(3) > 0
			j.Grace = time.Duration(a.random.IntN(2)) * lease
		})
		for range min(perGame, rounds-done) {
			a.round(t, suspended)
		}
		a.close(t)
	}
	writes, stale, back := a.ledger.verdict(t)
	a.summary(t, rounds, writes, stale)
	assert.Zero(t, stale, "writes of a term after a later one had begun")
	assert.Zero(t, back, "writes after those of a later term")
	assert.Zero(t, a.committed, "writes in a context that had ended")
	assert.Positive(t, writes)
	if rounds >= 20 {
		assert.Positive(t, a.refused, "nobody went on after the end of a term")
	}
}

// The control: without guards, and with leaders that do not look at their
// context, both judges find what they look for.
func TestWithoutGuardsTermsOutliveTheirEnds(t *testing.T) {
	a := newArena(t)
	a.open(t, 3, func(j *job) { j.Stubborn, j.Reckless = true, true })
	var late []late
	stale := 0
	for round := 0; stale == 0 || len(late) == 0; round++ {
		require.Less(t, round, 20, "nothing went wrong: the judges see nothing")
		before := a.witness.begin(ended)
		_, affected := a.strike(t, ended, a.nodes[before.node])
		standing := affected[0].standing()
		a.witness.awaitTerm(t, before.term)
		affected[0].awaitStanding(standing)
		acts, _ := a.witness.drain()
		for _, l := range acts {
			if !l.excused(time.Time{}) {
				late = append(late, l)
			}
		}
		_, stale, _ = a.ledger.verdict(t)
	}
	_, _, back := a.ledger.verdict(t)
	assert.Positive(t, back)
	t.Logf("control: %d stale writes, %d acts later than %v after the successor's first", stale, len(late), noticeBound)
}

// open starts a game of n nodes.
func (a *arena) open(t *testing.T, n int, set func(*job)) {
	t.Helper()
	a.witness.begin(nothing)
	a.nodes = nil
	for i := range n {
		j := job{Node: i, DSN: a.server.DSN(""), Work: a.server.DSN(""), Witness: a.witness.address()}
		set(&j)
		node := newNode(t, j)
		node.start()
		a.nodes = append(a.nodes, node)
	}
	for _, node := range a.nodes {
		node.awaitStanding(0)
	}
	a.last = a.witness.awaitTerm(t, a.last).term
}

// round makes a fault happen to the leader and waits until there is a new one, and
// the old one is back.
func (a *arena) round(t *testing.T, f fault) {
	t.Helper()
	<-time.After(time.Duration(a.random.Int64N(int64(200 * time.Millisecond))))
	before := a.witness.begin(f)
	began := time.Now()
	undo, affected := a.strike(t, f, a.nodes[before.node])
	if f == restarted {
		began = time.Now()
	}
	after := a.witness.awaitTerm(t, before.term)
	took := after.began.Sub(began)
	standing := make([]int, len(affected))
	for i, node := range affected {
		standing[i] = node.standing()
	}
	undo()
	for i, node := range affected {
		if node.job.Node != after.node {
			node.awaitStanding(standing[i])
		}
	}
	assert.LessOrEqual(t, took, takeoverBound(f, 20), "until somebody led again: %s", f)
	if took > takeoverBound(f, 1) {
		a.slow++
	}
	a.count[f]++
	a.longest[f] = max(a.longest[f], took)
	a.judge(t)
	t.Logf("%d nodes: node %d, term %v, %s; node %d leads after %v", len(a.nodes), before.node, before.term, f, after.node, took.Round(time.Millisecond))
}

// judge looks at what was late until now.
func (a *arena) judge(t *testing.T) {
	t.Helper()
	acts, faulty := a.witness.drain()
	assert.Empty(t, faulty)
	for _, l := range acts {
		a.overlap[l.successor.after] = max(a.overlap[l.successor.after], l.by())
		assert.True(t, l.excused(a.woken), "node %d acted in term %v, %v after the first act of term %v by node %d, which began as it was %q; it had looked %v before",
			l.node, l.term, l.by(), l.successor.term, l.successor.node, l.successor.after, l.at.Sub(l.looked))
	}
}

// close ends a game: all nodes stop in good order, and nothing is held.
func (a *arena) close(t *testing.T) {
	t.Helper()
	a.witness.begin(retired)
	for _, node := range a.nodes {
		node.tell("stop")
	}
	for _, node := range a.nodes {
		node.exit()
		l := node.log
		assert.Empty(t, l.faulty, "node %d", node.job.Node)
		a.refused, a.committed, a.hidden = a.refused+l.refused, a.committed+l.committed, a.hidden+l.hidden
		for word, n := range l.said {
			a.events[word] += n
		}
	}
	await(t, "nothing is locked", func() bool {
		var n int
		err := a.ledger.pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&n)
		return err == nil && n == 0
	})
	a.judge(t)
	a.last = a.witness.begin(nothing).term
}

func (a *arena) summary(t *testing.T, rounds, writes, stale int) {
	t.Helper()
	terms, acts, lost := a.witness.total()
	t.Logf("%d rounds, %d terms, %d acts (%d more were lost on the way), %d guarded writes, %d of them stale", rounds, terms, acts, lost, writes, stale)
	t.Logf("in ended contexts: %d writes refused, %d committed; in hidden ones, before anybody else led: %d committed", a.refused, a.committed, a.hidden)
	t.Logf("events: %v", a.events)
	for _, f := range faults {
		t.Logf("%-10s %3d times: led again after %8v at most (bound %v), late acts by %v at most", f, a.count[f],
			a.longest[f].Round(time.Millisecond), takeoverBound(f, 1), a.overlap[f].Round(10*time.Microsecond))
	}
	if a.slow > 0 {
		t.Logf("NOTE: %d takeovers took longer than their bound", a.slow)
	}
}
