//go:build integration

package shards

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/ledgertest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/replay"
	"github.com/pglatch/pglatch/internal/test/tally"
)

// A game is a server, and the nodes that own shards there.
type game struct {
	*electiontest.Cluster
	*ledgertest.Ledger
	server  *pgserver.Server
	run     *replay.Run // nil = nothing is written
	first   int         // of the list that all go by
	carried int         // shards of the session that was terminated last
	others  []int32     // the sessions that carried shards beside it
	faults  []fault
	stats   map[string]*outcomes // by fault
	pace    pace                 // of nodes, and of all bounds: see open
}

// outcomes are what rounds of one fault came to.
type outcomes struct {
	count            int
	owned, even, gap time.Duration // the longest
	slow             int
}

// settings of a server of shards.
var serverSettings = map[string]string{"synchronous_commit": "on"}

func newGame(t *testing.T) *game {
	t.Helper()
	return newTracedGame(t, nil)
}

// newTracedGame is a game whose nodes write a run.
func newTracedGame(t *testing.T, run *replay.Run) *game {
	t.Helper()
	server := pgtest.StartServer(t, pgserver.Options{Settings: serverSettings})
	return newGameOn(t, server, server.DSN(""), run, func(n *electiontest.Node) { n.Job.Settings[settingDSN] = n.Through(server.DSN("")) })
}

// newGameOn is a game in which join has to say how a node reaches the server, if not by the DSN.
func newGameOn(t *testing.T, server *pgserver.Server, dsn string, run *replay.Run, join func(*electiontest.Node)) *game {
	t.Helper()
	g := &game{Ledger: ledgertest.New(t, dsn), server: server, run: run, stats: make(map[string]*outcomes), pace: 1}
	g.faults = g.allFaults()
	setup := electiontest.Setup{
		Join: func(n *electiontest.Node) {
			n.Job.Role = "owner"
			n.Job.Settings = map[string]string{settingDSN: dsn, settingWork: dsn, settingFirst: fmt.Sprint(g.first)}
			join(n)
		},
		Free: g.free, Run: g.run,
	}
	for _, f := range g.faults {
		setup.Faults = append(setup.Faults, f.Fault)
		g.stats[f.Name] = new(outcomes)
	}
	g.Cluster = electiontest.NewCluster(t, setup)
	return g
}

// free reports whether no advisory lock is held.
func (g *game) free() bool {
	var locks int
	err := g.Pool.QueryRow(context.Background(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&locks)
	return err == nil && locks == 0
}

// sessions returns the pids of those that carry shards, not only the locks of a transaction.
func (g *game) sessions() ([]int32, error) {
	rows, _ := g.Pool.Query(context.Background(), // CollectRows returns the error
		`SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted GROUP BY pid HAVING count(*) > 5`)
	return pgx.CollectRows(rows, pgx.RowTo[int32])
}

// lease is how long ownership lasts without a renewal, in this game.
func (g *game) lease() time.Duration { return g.pace.of(lease) }

// bound is the longest time until each shard is owned again, on a machine that is slower by a factor.
func (g *game) bound(f fault, noise int) time.Duration { return g.pace.of(f.Bound(noise)) }

// open starts n nodes, whose jobs set may change, and waits until they own all shards evenly. On a slow machine nodes
// with short leases lose them as fast as they get them. If they do not settle soon, the game begins again with leases
// that are twice as long, and half of the work.
func (g *game) open(n int, set func(*electiontest.Job)) {
	g.T.Helper()
	began := time.Now()
	for g.start(n, set); ; g.start(n, set) {
		limit := settleAtMost * g.lease()
		if g.pace == slowest {
			limit = 3 * patience
		}
		unsettled := g.wait(limit, g.uneven)
		if unsettled == "" {
			break
		}
		require.Less(g.T, g.pace, slowest, "%d nodes do not settle: %s", n, unsettled)
		g.T.Logf("NOTE: %d nodes do not settle with leases of %v, so they get longer ones: %s", n, g.lease(), unsettled)
		g.Close()
		g.pace *= 2
	}
	await.Until(g.T, patience, func() bool { // one that a node has lost lasts at the server for a while
		sessions, err := g.sessions()
		return err == nil && len(sessions) <= 2*n
	}, "more sessions carry shards")
	g.T.Logf("%d nodes own %d shards evenly after %v", n, listed, time.Since(began).Round(time.Millisecond))
}

// start starts n nodes, whose jobs set may change.
func (g *game) start(n int, set func(*electiontest.Job)) {
	g.T.Helper()
	g.Start(n, func(j *electiontest.Job) {
		j.Settings[settingNodes], j.Settings[settingPace] = fmt.Sprint(n), fmt.Sprint(g.pace)
		set(j)
	})
}

// awaitEven waits until each shard of the list was worked on after now, and each node has its
// part, rounded down or up.
func (g *game) awaitEven() {
	g.T.Helper()
	g.await("the nodes to own all shards evenly", g.uneven)
}

// uneven returns which nodes do not have their part; "" = all have it. Its arguments are those of await.
func (g *game) uneven(latest map[int]judge.Tenure, since time.Time) string {
	parts, missing := g.parts(latest, since)
	low, high := listed/len(g.Nodes), (listed+len(g.Nodes)-1)/len(g.Nodes)
	if missing > 0 || slices.Min(parts) < low || slices.Max(parts) > high {
		return fmt.Sprintf("they own %v, and nobody %d", parts, missing)
	}
	return ""
}

// parts counts the shards of each node, and those on which nobody who lives has worked since a moment.
func (g *game) parts(latest map[int]judge.Tenure, since time.Time) (parts []int, missing int) {
	parts = make([]int, len(g.Nodes))
	for shard := g.first; shard < g.first+listed; shard++ {
		r := latest[shard]
		if !r.Last.After(since) || r.PID != g.Nodes[r.Node].PID() {
			missing++
			continue
		}
		parts[r.Node]++
	}
	return parts, missing
}

// await waits until nothing is wrong about the latest tenures. since is a moment at which all was
// looked at before, so that what is not worked on any more is found out.
func (g *game) await(what string, wrong func(latest map[int]judge.Tenure, since time.Time) string) {
	g.T.Helper()
	if last := g.wait(3*patience, wrong); last != "" {
		require.Fail(g.T, "this took too long: "+what, last)
	}
}

// wait is await with a limit. It returns what is wrong at the end, and the last errors of the nodes.
func (g *game) wait(limit time.Duration, wrong func(latest map[int]judge.Tenure, since time.Time) string) string {
	g.T.Helper()
	since, last := time.Now(), ""
	for end := time.Now().Add(limit); time.Now().Before(end); electiontest.Pause(g.T.Context(), 10*time.Millisecond) {
		if last = wrong(g.Terms.Latest(), since); last == "" {
			return ""
		}
		if time.Since(since) > g.lease() { // what was right a lease ago may be wrong by now
			since = time.Now().Add(-g.pace.of(3 * pauseAtMost))
		}
	}
	for _, node := range g.Nodes {
		last += fmt.Sprintf("\nnode %d: %s", node.Job.Node, node.LastError())
	}
	return last
}

// round makes a fault happen and waits until each shard is owned again, and then evenly.
func (g *game) round(f fault) {
	g.T.Helper()
	<-time.After(time.Duration(g.Random.Int64N(int64(200 * time.Millisecond))))
	before := g.Terms.During(f.Name)
	victim := g.Nodes[g.Random.IntN(len(g.Nodes))]
	if f.victim != nil {
		victim = f.victim
	}
	pid := victim.PID()
	begun := time.Now()
	struck := begun
	ends := g.run.Fault("", f.Name) // a session that is terminated may be anybody's
	undo := f.Strike(g.Cluster, victim)
	if f.Outage {
		struck = time.Now()
	}
	taken := func(r judge.Tenure) bool { return r.PID == pid || f.Outage }
	if f.owned != nil {
		taken = func(judge.Tenure) bool { return true }
		f.owned(before, struck)
	} else {
		g.awaitOwned(before, taken)
	}
	owned := g.tookOver(before, taken, struck)
	undo()
	back := time.Now()
	g.awaitEven()
	even := time.Since(back)
	ends()
	g.Check()

	o := g.stats[f.Name]
	o.count++
	o.owned, o.even = max(o.owned, owned), max(o.even, even)
	moved := 0
	for shard, all := range g.Terms.Since(begun) {
		moved += len(all)
		for _, r := range all {
			if shard >= shifted && shard < listed { // it is in each list
				o.gap = max(o.gap, r.Gap)
			}
		}
	}
	if owned > g.bound(f, 1) {
		o.slow++
	}
	assert.LessOrEqual(g.T, owned, g.bound(f, 20), "until each shard was owned again: %s", f.Name)
	g.T.Logf("%d nodes, %s: owned again after %v, evenly %v later; %d ownerships began", len(g.Nodes), f.Name,
		owned.Round(time.Millisecond), even.Round(time.Millisecond), moved)
}

// awaitOwned waits until each shard that was taken away has a new owner, and all of the list are worked on.
func (g *game) awaitOwned(before map[int]judge.Tenure, taken func(judge.Tenure) bool) {
	g.T.Helper()
	g.await("each shard to be owned again", func(latest map[int]judge.Tenure, since time.Time) string {
		missing := 0
		for shard := g.first; shard < g.first+listed; shard++ {
			r, was := latest[shard], before[shard]
			if !r.Last.After(since) || taken(was) && r.Term.Compare(was.Term) <= 0 {
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
func (g *game) tookOver(before map[int]judge.Tenure, taken func(judge.Tenure) bool, struck time.Time) (longest time.Duration) {
	for shard, all := range g.Terms.Since(struck) {
		if was := before[shard]; taken(was) && was.Term.Compare(all[0].Term) < 0 {
			longest = max(longest, all[0].Began.Sub(struck))
		}
	}
	return longest
}

// requireLegal checks what all operations and transactions came to.
func (g *game) requireLegal() {
	g.T.Helper()
	tenures, operations, lost := g.Terms.Total()
	g.T.Logf("%d ownerships, %d operations (%d more were lost on the way)", tenures, operations, lost)
	tally.Count(g.T, "ownerships", tenures)
	tally.Count(g.T, "operations", operations)
	_, _, stale := g.Terms.Fenced()
	assert.Empty(g.T, stale, "accepted by a fence")
	assert.Empty(g.T, g.Late(), "operations in a term, after the first operation of a later one")
	g.RequireLegal(g.T)
}

// summary tells what all rounds came to.
func (g *game) summary() {
	for _, f := range g.faults {
		o := g.stats[f.Name]
		tally.Faults(g.T, tally.Fault{Name: f.Name, Times: o.count, Freed: o.owned, Bound: g.bound(f, 1), Overlap: new(g.Overlap(f.Name))})
		g.T.Logf("%-11s %3d times: owned again after %6v at most (bound %v; %d were slower), evenly %6v later; a shard was without operations for %6v; late operations by %v",
			f.Name, o.count, o.owned.Round(time.Millisecond), g.bound(f, 1), o.slow, o.even.Round(time.Millisecond), o.gap.Round(time.Millisecond),
			g.Overlap(f.Name).Round(10*time.Microsecond))
	}
}

// A fault is what happens in a round. Its bounds are those of the time until each shard is owned again.
type fault struct {
	electiontest.Fault

	victim *electiontest.Node // nil = any

	// owned waits until all shards are owned again. nil = all that the victim owned have new owners.
	owned func(before map[int]judge.Tenure, struck time.Time)
}

// noticeBound is how long a node whose session the server has ended may act after its successor's
// first operation. The node detects the loss in about a millisecond. 5 ms × 20 allows for a busy machine.
const noticeBound = 20 * 5 * time.Millisecond

// allFaults are all that there are; their bounds are those that docs/reference/shards.md states, for the shortest lease. A server that hears nothing ends a
// session after a lease, and after another one a guarded transaction that was stopped half way.
func (g *game) allFaults() []fault {
	noticed := func(name string, quick time.Duration, strike func() func()) electiontest.Fault {
		return electiontest.Fault{Name: name, Quick: quick, Notice: noticeBound, Unnoticed: 1, Strike: by(strike)}
	}
	outage := func(f electiontest.Fault) electiontest.Fault {
		f.Outage = true
		return f
	}
	return []fault{
		{Fault: electiontest.Killed(0, attempt)},
		{Fault: electiontest.Suspended(2*lease, attempt)},
		{Fault: electiontest.CutOff(2*lease, attempt)},
		{Fault: noticed("terminated", attempt, g.terminate), owned: g.awaitCarried},
		{Fault: outage(noticed("restarted", 3*attempt, g.restart))},
		{Fault: electiontest.Fault{Name: "deployed", Fixed: stay, Quick: 4 * attempt, Outage: true, Strike: by(g.deploy)}, owned: g.awaitList},
		{Fault: electiontest.Fault{Name: "two fleets", Fixed: stay, Quick: 4 * attempt, Outage: true, Strike: by(g.halfDeploy)}, owned: g.awaitPeace},
	}
}

// by makes a strike of one that chooses its victim by itself.
func by(strike func() func()) func(*electiontest.Cluster, *electiontest.Node) func() {
	return func(*electiontest.Cluster, *electiontest.Node) func() { return strike() }
}

func (g *game) faultNamed(name string) fault {
	return g.faults[slices.IndexFunc(g.faults, func(f fault) bool { return f.Name == name })]
}

// terminate is pg_terminate_backend of one of the sessions that carry shards, whoever has it. A shard is a lock that is not shared.
func (g *game) terminate() func() {
	all, err := g.sessions()
	require.NoError(g.T, err)
	var ended int32
	require.NoError(g.T, g.Pool.QueryRow(g.T.Context(), `SELECT pid, shards FROM (SELECT pid, count(*) AS shards FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' GROUP BY pid HAVING count(*) > 5 ORDER BY random() LIMIT 1) AS one
		WHERE pg_terminate_backend(pid)`).Scan(&ended, &g.carried), "nobody carries shards")
	g.others = slices.DeleteFunc(all, func(pid int32) bool { return pid == ended })
	return func() {}
}

// awaitCarried waits until the shards of the session that was terminated are owned again: those of the node's other session work on.
// They are half of the node's after a claim, and as many as it happens to be after moves.
func (g *game) awaitCarried(before map[int]judge.Tenure, struck time.Time) {
	// The shards that were taken away; one that was moved since was not.
	lost := func(latest map[int]judge.Tenure) (n int) {
		for shard, was := range before {
			if latest[shard].Term != was.Term && was.Last.After(struck.Add(-g.lease())) {
				n++
			}
		}
		return n
	}
	g.await("the shards of a session to be owned again", func(latest map[int]judge.Tenure, since time.Time) string {
		if _, missing := g.parts(latest, since); missing > 0 || lost(latest) < g.carried {
			return fmt.Sprintf("%d are not, and %d of %d were lost", missing, lost(latest), g.carried)
		}
		return ""
	})
	n := lost(g.Terms.Latest())
	left, err := g.sessions()
	require.NoError(g.T, err)
	if slices.ContainsFunc(g.others, func(pid int32) bool { return !slices.Contains(left, pid) }) {
		g.T.Log("another session ended in this round, by its lease: the machine is busy")
		return
	}
	assert.LessOrEqual(g.T, n, g.carried+listed/len(g.Nodes)/4, "more was lost than the session carried, and a few that moved")
}

// restart restarts the server, which ends all sessions.
func (g *game) restart() func() {
	require.NoError(g.T, g.server.RestartAnyhow(context.WithoutCancel(g.T.Context()), g.Random))
	g.Pool.Reset()
	return func() {}
}

// deploy stops one node after the other in good order, and starts it with another list.
func (g *game) deploy() func() {
	g.first = shifted - g.first
	for _, n := range g.Nodes {
		g.deployTo(n)
	}
	return func() {}
}

func (g *game) deployTo(n *electiontest.Node) {
	n.Stop()
	n.Job.Settings[settingFirst] = fmt.Sprint(g.first)
	n.Start()
}

// awaitList waits until all shards of the list are worked on.
func (g *game) awaitList(map[int]judge.Tenure, time.Time) {
	g.await("the shards of a list to be owned", func(latest map[int]judge.Tenure, since time.Time) string {
		if parts, missing := g.parts(latest, since); missing > 0 {
			return fmt.Sprintf("they own %v, and nobody %d", parts, missing)
		}
		return ""
	})
}

// halfDeploy gives half of the nodes another list, and later the rest.
func (g *game) halfDeploy() func() {
	g.first = shifted - g.first
	half := len(g.Nodes) / 2
	for _, n := range g.Nodes[:half] {
		g.deployTo(n)
	}
	return func() {
		for _, n := range g.Nodes[half:] {
			g.deployTo(n)
		}
	}
}

// awaitPeace waits until the shards of both lists are owned, each by a node that knows it, and looks whether they stay.
func (g *game) awaitPeace(map[int]judge.Tenure, time.Time) {
	wrong := func(latest map[int]judge.Tenure, since time.Time) string {
		missing, strangers := 0, 0
		for shard := range listed + shifted {
			r := latest[shard]
			if !r.Last.After(since) || r.PID != g.Nodes[r.Node].PID() {
				missing++
				continue
			}
			first := 0
			_, _ = fmt.Sscan(g.Nodes[r.Node].Job.Settings[settingFirst], &first)
			if shard < first || shard >= first+listed {
				strangers++
			}
		}
		if missing+strangers > 0 {
			return fmt.Sprintf("nobody owns %d, and who does not know it %d", missing, strangers)
		}
		return ""
	}
	g.await("the shards of two lists to be owned", wrong)
	// Members of one list even out among themselves, each shard once.
	began := time.Now()
	<-time.After(2 * stay)
	g.await("the shards of two lists to stay owned", wrong)
	for shard, all := range g.Terms.Since(began) {
		assert.LessOrEqual(g.T, len(all), 2, "shard %d moves to and fro between two fleets", shard)
	}
}
