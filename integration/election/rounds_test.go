//go:build integration

package election

import (
	"cmp"
	"math/rand/v2"
	"os"
	"slices"
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
	last    leader.Term       // of games before
	woken   map[int]time.Time // nodes that were stopped
	late    []string          // acts that nothing excuses

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
		witness: newWitness(t), woken: make(map[int]time.Time), events: make(map[string]int), count: make(map[fault]int),
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
	var order []int // of faults: each comes as often as the others
	for len(order) < rounds {
		order = append(order, a.random.Perm(len(faults))...)
	}
	for done := 0; done < rounds; done += perGame {
		a.open(t, 2+a.random.IntN(maxNodes-1), func(j *job) {
			j.Stubborn = a.random.IntN(3) > 0
			j.Grace = time.Duration(a.random.IntN(2)) * lease
		})
		for _, i := range order[done:min(done+perGame, rounds)] {
			a.round(t, faults[i])
		}
		a.close(t)
	}
	writes, stale, back := a.ledger.verdict(t)
	a.summary(t, rounds, writes, stale)
	assert.Empty(t, a.late, "acts in a term, after the first act of a later one")
	assert.Zero(t, stale, "writes of a term after a later one had begun")
	assert.Zero(t, back, "writes after those of a later term")
	assert.Zero(t, a.committed, "writes in a context that had ended")
	assert.Positive(t, writes)
	if rounds >= 20 {
		assert.Positive(t, a.refused, "nobody went on after the end of a term")
	}
}

// A leader that never rests is stopped just before it looks. One that does not
// look is the control.
func TestTheFirstLookOfAWokenLeaderFindsItsContextEnded(t *testing.T) {
	a := newArena(t)
	a.open(t, 2, func(j *job) { j.Busy = true })
	for range 5 {
		a.round(t, suspended)
	}
	a.close(t)
	assert.Empty(t, a.late)

	a.open(t, 2, func(j *job) { j.Busy, j.Reckless = true, true })
	a.round(t, suspended)
	a.close(t)
	require.NotEmpty(t, a.late, "the witness sees nothing")
	t.Log("control:", a.late[0])
}

// The control: without guards, and with leaders that do not look at their
// context, both judges find what they look for.
func TestWithoutGuardsTermsOutliveTheirEnds(t *testing.T) {
	a := newArena(t)
	a.open(t, 3, func(j *job) { j.Stubborn, j.Reckless = true, true })
	stale, back := 0, 0
	for round := 0; stale == 0 || back == 0 || len(a.late) == 0; round++ {
		require.Less(t, round, 20, "nothing went wrong: the judges see nothing")
		a.round(t, ended)
		_, stale, back = a.ledger.verdict(t)
	}
	t.Logf("control: %d stale writes, %d acts too late, such as: %s", stale, len(a.late), a.late[0])
	a.close(t)
}

// open starts a game of n nodes.
func (a *arena) open(t *testing.T, n int, set func(*job)) {
	t.Helper()
	a.witness.begin(nothing)
	a.nodes = nil
	clear(a.woken)
	for i := range n {
		j := job{Node: i, DSN: a.server.DSN(""), Work: a.server.DSN(""), Witness: a.witness.address()}
		set(&j)
		node := newNode(t, j)
		node.start()
		a.nodes = append(a.nodes, node)
	}
	for _, node := range a.nodes {
		node.awaitStanding(0, a.witness.leads)
	}
	a.last = a.witness.awaitTerm(t, a.last).term
}

// round makes a fault happen to the leader and waits until there is a new one, and
// the old one is back.
func (a *arena) round(t *testing.T, f fault) {
	t.Helper()
	<-time.After(time.Duration(a.random.Int64N(int64(200 * time.Millisecond))))
	before := a.witness.begin(f)
	bound := func(noise int) time.Duration { return takeoverBound(f, noise) }
	also := nothing
	began := time.Now()
	undo, affected := a.strike(t, f, a.nodes[before.node])
	undoAlso := func() {}
	if len(a.nodes) > 2 && a.random.IntN(3) == 0 {
		// One that follows, or has just begun to lead.
		also = []fault{killed, suspended, cutOff}[a.random.IntN(3)]
		other := a.nodes[(before.node+1+a.random.IntN(len(a.nodes)-1))%len(a.nodes)]
		undoAlso, _ = a.strike(t, also, other)
		affected = append(slices.Clone(affected), other)
		bound = func(noise int) time.Duration { // it may hold the lock
			return takeoverBound(f, noise) + takeoverBound(suspended, noise)
		}
	}
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
	undoAlso()
	for i, node := range affected {
		node.awaitStanding(standing[i], a.witness.leads)
	}
	assert.LessOrEqual(t, took, bound(20), "until somebody led again: %s, and a follower %s", f, also)
	if took > bound(1) {
		a.slow++
	}
	a.count[f]++
	if also == nothing {
		a.longest[f] = max(a.longest[f], took)
	}
	a.judge(t)
	t.Logf("%d nodes: node %d, term %v, %s (follower: %s); node %d leads after %v",
		len(a.nodes), before.node, before.term, f, cmp.Or(also, "well"), after.node, took.Round(time.Millisecond))
}

// judge looks at what was late until now.
func (a *arena) judge(t *testing.T) {
	t.Helper()
	acts, faulty := a.witness.drain()
	assert.Empty(t, faulty)
	for _, l := range acts {
		a.overlap[l.successor.after] = max(a.overlap[l.successor.after], l.by())
		if !l.excused(a.woken[l.node]) {
			a.late = append(a.late, l.String())
		}
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
