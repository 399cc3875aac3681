//go:build integration

package shards

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// A game is a server, and the nodes that own shards there.
type game struct {
	t        *testing.T
	random   *rand.Rand
	server   *pgserver.Server
	work     string // the DSN of transactions
	join     func(n *electiontest.Node)
	ledger   *ledger
	observer *observer
	nodes    []*electiontest.Node
	first    int                  // of the list that all go by
	carried  int                  // shards of the session that was terminated last
	others   []int32              // the sessions that carried shards beside it
	woken    map[int]time.Time    // nodes that were stopped
	late     []string             // operations that nothing excuses
	counts   map[string]int       // of games that are over
	stats    map[string]*outcomes // by fault
}

// outcomes are what rounds of one fault came to.
type outcomes struct {
	count            int
	owned, even, gap time.Duration // the longest
	overlap          time.Duration // of late operations
	slow             int
}

// settings of a server of shards.
var serverSettings = map[string]string{"synchronous_commit": "on"}

func newGame(t *testing.T) *game {
	t.Helper()
	server := pgtest.StartServer(t, pgserver.Options{Settings: serverSettings})
	g := newGameOn(t, server, server.DSN(""))
	g.join = func(n *electiontest.Node) { n.Job.Settings[settingDSN] = n.Through(server.DSN("")) }
	return g
}

// newGameOn is a game in which join has to say how a node reaches the server, if not by the DSN.
func newGameOn(t *testing.T, server *pgserver.Server, dsn string) *game {
	t.Helper()
	return &game{
		t: t, random: electiontest.NewRandom(t), server: server, work: dsn, ledger: newLedger(t, dsn), observer: newObserver(t),
		join:  func(*electiontest.Node) {},
		woken: make(map[int]time.Time), counts: make(map[string]int), stats: make(map[string]*outcomes),
	}
}

// open starts n nodes, whose jobs set may change, and waits until they own all shards evenly.
func (g *game) open(n int, set func(*electiontest.Job)) {
	g.t.Helper()
	began := time.Now()
	g.start(n, set)
	g.awaitEven()
	require.Eventually(g.t, func() bool { // one that a node has lost lasts at the server for a while
		sessions, err := g.ledger.sessions()
		return err == nil && len(sessions) <= 2*n
	}, patience, 5*time.Millisecond, "more sessions carry shards")
	g.t.Logf("%d nodes own %d shards evenly after %v", n, listed, time.Since(began).Round(time.Millisecond))
}

// start starts n nodes, whose jobs set may change.
func (g *game) start(n int, set func(*electiontest.Job)) {
	g.t.Helper()
	g.observer.begin("opened")
	g.nodes = nil
	clear(g.woken)
	for i := range n {
		node := electiontest.NewNode(g.t, electiontest.Job{Node: i, Role: "owner"})
		node.Job.Settings = map[string]string{
			settingDSN: g.work, settingWork: g.work, settingObserver: "udp4 " + g.observer.queue.Address(),
			settingFirst: fmt.Sprint(g.first), settingNodes: fmt.Sprint(n),
		}
		set(&node.Job)
		g.join(node)
		node.Start()
		g.nodes = append(g.nodes, node)
	}
}

// close stops all nodes in good order, after which nothing is held.
func (g *game) close() {
	g.t.Helper()
	g.observer.begin("closed")
	for _, node := range g.nodes {
		node.AskToStop()
	}
	for _, node := range g.nodes {
		node.Exit()
		assert.Empty(g.t, node.Faulty(), "node %d", node.Job.Node)
		for _, name := range []string{"writes", "refused", "committed", "hidden"} {
			g.counts[name] += node.Counted(name)
		}
	}
	require.Eventually(g.t, func() bool {
		n, err := g.ledger.locks(g.t)
		return err == nil && n == 0
	}, patience, 5*time.Millisecond, "something is held")
	g.check()
}

// awaitEven waits until each shard of the list was worked on after now, and each node has its
// part, rounded down or up.
func (g *game) awaitEven() {
	g.t.Helper()
	g.await("the nodes to own all shards evenly", func(latest map[int]tenure, since time.Time) string {
		parts, missing := g.parts(latest, since)
		low, high := listed/len(g.nodes), (listed+len(g.nodes)-1)/len(g.nodes)
		if missing > 0 || slices.Min(parts) < low || slices.Max(parts) > high {
			return fmt.Sprintf("they own %v, and nobody %d", parts, missing)
		}
		return ""
	})
}

// parts counts the shards of each node, and those on which nobody who lives has worked since a moment.
func (g *game) parts(latest map[int]tenure, since time.Time) (parts []int, missing int) {
	parts = make([]int, len(g.nodes))
	for shard := g.first; shard < g.first+listed; shard++ {
		r := latest[shard]
		if !r.last.After(since) || r.pid != g.nodes[r.node].PID() {
			missing++
			continue
		}
		parts[r.node]++
	}
	return parts, missing
}

// await waits until nothing is wrong about the latest tenures. since is a moment at which all was
// looked at before, so that what is not worked on any more is found out.
func (g *game) await(what string, wrong func(latest map[int]tenure, since time.Time) string) {
	g.t.Helper()
	since, last := time.Now(), ""
	for end := time.Now().Add(3 * patience); time.Now().Before(end); electiontest.Pause(g.t.Context(), 10*time.Millisecond) {
		if last = wrong(g.observer.latest(), since); last == "" {
			return
		}
		if time.Since(since) > lease { // what was right a lease ago may be wrong by now
			since = time.Now().Add(-3 * pauseAtMost)
		}
	}
	var errors []string
	for _, node := range g.nodes {
		errors = append(errors, fmt.Sprintf("node %d: %s", node.Job.Node, node.LastError()))
	}
	require.Fail(g.t, "this took too long: "+what, "%s; their last errors:\n%s", last, strings.Join(errors, "\n"))
}

// check looks at what was late until now, and at what the nodes say.
func (g *game) check() {
	g.t.Helper()
	operations, faulty := g.observer.drain()
	assert.Empty(g.t, faulty)
	for _, l := range operations {
		o := g.outcomesOf(l.successor.after)
		o.overlap = max(o.overlap, l.by())
		if !g.excused(l) {
			g.late = append(g.late, l.String())
		}
	}
}

// stall is how long after a look no act comes but that of a process that was stopped between them.
const stall = 50 * time.Millisecond

// excused reports whether an operation may be late: a process can be stopped between its last look at its
// context and the act; and a server that ends a session tells its node after the fact. A node that does not run for a while on a
// busy machine gets its notice late: its work on a shard may act once before.
func (g *game) excused(l lateOperation) bool {
	woken := g.woken[l.node]
	if l.looked.Before(woken) && l.at.After(woken) || l.looked.Before(l.successor.began) && l.at.Sub(l.looked) > stall {
		return true
	}
	f, ok := faultNamed(l.successor.after)
	return ok && (l.by() <= f.notice || f.notice > 0 && l.nth == 1)
}

func (g *game) outcomesOf(fault string) *outcomes {
	if g.stats[fault] == nil {
		g.stats[fault] = new(outcomes)
	}
	return g.stats[fault]
}

// round makes a fault happen and waits until each shard is owned again, and then evenly.
func (g *game) round(f fault) {
	g.t.Helper()
	<-time.After(time.Duration(g.random.Int64N(int64(200 * time.Millisecond))))
	before := g.observer.begin(f.name)
	victim := g.nodes[g.random.IntN(len(g.nodes))]
	if f.victim != nil {
		victim = f.victim
	}
	pid := victim.PID()
	begun := time.Now()
	struck := begun
	undo := f.strike(g, victim)
	if f.outage {
		struck = time.Now()
	}
	taken := func(r tenure) bool { return r.pid == pid || f.outage }
	if f.owned != nil {
		taken = func(tenure) bool { return true }
		f.owned(g, before, struck)
	} else {
		g.awaitOwned(before, taken)
	}
	owned := g.tookOver(before, taken, struck)
	undo()
	back := time.Now()
	g.awaitEven()
	even := time.Since(back)
	g.check()

	o := g.outcomesOf(f.name)
	o.count++
	o.owned, o.even = max(o.owned, owned), max(o.even, even)
	moved := 0
	for shard, all := range g.observer.since(begun) {
		moved += len(all)
		for _, r := range all {
			if shard >= shifted && shard < listed { // it is in each list
				o.gap = max(o.gap, r.gap)
			}
		}
	}
	if owned > f.bound(1) {
		o.slow++
	}
	assert.LessOrEqual(g.t, owned, f.bound(20), "until each shard was owned again: %s", f.name)
	g.t.Logf("%d nodes, %s: owned again after %v, evenly %v later; %d ownerships began", len(g.nodes), f.name,
		owned.Round(time.Millisecond), even.Round(time.Millisecond), moved)
}

// awaitOwned waits until each shard that was taken away has a new owner, and all of the list are worked on.
func (g *game) awaitOwned(before map[int]tenure, taken func(tenure) bool) {
	g.t.Helper()
	g.await("each shard to be owned again", func(latest map[int]tenure, since time.Time) string {
		missing := 0
		for shard := g.first; shard < g.first+listed; shard++ {
			r, was := latest[shard], before[shard]
			if !r.last.After(since) || taken(was) && r.term.Compare(was.term) <= 0 {
				missing++
			}
		}
		if missing > 0 {
			return fmt.Sprintf("%d are not", missing)
		}
		return ""
	})
}

// tookOver is how long after a moment the last of the shards that were taken away had a new owner.
func (g *game) tookOver(before map[int]tenure, taken func(tenure) bool, struck time.Time) (longest time.Duration) {
	for shard, all := range g.observer.since(struck) {
		if was := before[shard]; taken(was) && was.term.Compare(all[0].term) < 0 {
			longest = max(longest, all[0].began.Sub(struck))
		}
	}
	return longest
}

// restartServer restarts the server in one of three ways.
func (g *game) restartServer() {
	g.t.Helper()
	ctx := context.WithoutCancel(g.t.Context())
	switch g.random.IntN(3) {
	case 0:
		require.NoError(g.t, g.server.Restart(ctx, pgserver.Fast))
	case 1:
		require.NoError(g.t, g.server.Restart(ctx, pgserver.Immediate))
	case 2:
		require.NoError(g.t, g.server.Kill())
		require.NoError(g.t, g.server.Start(ctx))
	}
	g.ledger.pool.Reset()
}

// summary tells what all rounds came to.
func (g *game) summary() {
	tenures, operations := g.observer.total()
	g.t.Logf("%d ownerships, %d operations; counts: %v", tenures, operations, g.counts)
	for _, f := range faults {
		o := g.outcomesOf(f.name)
		g.t.Logf("%-11s %3d times: owned again after %6v at most (bound %v; %d were slower), evenly %6v later; a shard was without operations for %6v; late operations by %v",
			f.name, o.count, o.owned.Round(time.Millisecond), f.bound(1), o.slow, o.even.Round(time.Millisecond), o.gap.Round(time.Millisecond),
			o.overlap.Round(10*time.Microsecond))
	}
}
