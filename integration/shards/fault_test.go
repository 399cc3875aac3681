//go:build integration

package shards

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
)

// A fault is what happens in a round.
type fault struct {
	name string

	victim *electiontest.Node // nil = any

	// strike makes it happen to a node. undo makes it good, once all shards are owned again.
	strike func(g *game, victim *electiontest.Node) (undo func())

	// owned waits until all shards are owned again. nil = all that the victim owned have new owners.
	owned func(g *game, before map[int]tenure, struck time.Time)

	// outage: it happens to all nodes, and is over when strike returns, from when on the bound counts.
	outage bool

	// fixed is how long after it each shard is owned again at the latest, but for what the machine's
	// speed decides, which is quick: that may take much longer before a test fails.
	fixed, quick time.Duration

	// notice is how long an owner may act after its successor's first operation: see electiontest.Fault.
	notice time.Duration
}

func (f fault) bound(noise int) time.Duration { return f.fixed + time.Duration(noise)*f.quick }

// noticeBound is how long after its successor's first operation a node may act whose session the
// server has ended: it is told in about a millisecond. 5 ms × 20, for machines that have other work.
const noticeBound = 20 * 5 * time.Millisecond

// faults are all that there are; their bounds are those that docs/shards.md states. A server that hears nothing ends a
// session after a lease, and after another one a guarded transaction that was stopped half way.
var faults = []fault{
	{name: "killed", quick: attempt, strike: kill},
	{name: "suspended", fixed: 2 * lease, quick: attempt, strike: suspend},
	{name: "cut off", fixed: 2 * lease, quick: attempt, strike: cut},
	{name: "terminated", quick: attempt, notice: noticeBound, strike: terminate, owned: awaitCarried},
	{name: "restarted", quick: 3 * attempt, notice: noticeBound, outage: true, strike: restart},
	{name: "deployed", fixed: stay, quick: 4 * attempt, outage: true, strike: deploy, owned: awaitList},
	{name: "two fleets", fixed: stay, quick: 4 * attempt, outage: true, strike: halfDeploy, owned: awaitPeace},
}

func faultNamed(name string) (fault, bool) {
	for _, f := range faults {
		if f.name == name {
			return f, true
		}
	}
	return fault{}, false
}

// kill is kill -9. The process is started again.
func kill(_ *game, n *electiontest.Node) func() {
	n.Kill()
	return n.Start
}

// suspend is SIGSTOP for longer than the lease, then SIGCONT.
func suspend(g *game, n *electiontest.Node) func() {
	began := time.Now()
	n.Signal(syscall.SIGSTOP)
	return func() {
		<-time.After(time.Until(began.Add(lease + time.Duration(g.random.Int64N(int64(lease/2))))))
		g.woken[n.Job.Node] = time.Now()
		n.Signal(syscall.SIGCONT)
	}
}

// cut is silent: nothing arrives, and nobody is told.
func cut(_ *game, n *electiontest.Node) func() {
	n.Proxy.Set(faultproxy.Hold)
	return func() { n.Proxy.Set(faultproxy.Pass) }
}

// terminate is pg_terminate_backend of one of the sessions that carry shards, whoever has it. A shard is a lock that is not shared.
func terminate(g *game, _ *electiontest.Node) func() {
	all, err := g.ledger.sessions()
	require.NoError(g.t, err)
	var ended int32
	require.NoError(g.t, g.ledger.pool.QueryRow(g.t.Context(), `SELECT pid, shards FROM (SELECT pid, count(*) AS shards FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' GROUP BY pid HAVING count(*) > 5 ORDER BY random() LIMIT 1) AS one
		WHERE pg_terminate_backend(pid)`).Scan(&ended, &g.carried), "nobody carries shards")
	g.others = slices.DeleteFunc(all, func(pid int32) bool { return pid == ended })
	return func() {}
}

// awaitCarried waits until the shards of the session that was terminated are owned again: those of the node's other session work on.
// They are half of the node's after a claim, and as many as it happens to be after moves.
func awaitCarried(g *game, before map[int]tenure, struck time.Time) {
	// The shards that were taken away; one that was moved since was not.
	lost := func(latest map[int]tenure) (n int) {
		for shard, was := range before {
			if latest[shard].term != was.term && was.last.After(struck.Add(-lease)) {
				n++
			}
		}
		return n
	}
	g.await("the shards of a session to be owned again", func(latest map[int]tenure, since time.Time) string {
		if _, missing := g.parts(latest, since); missing > 0 || lost(latest) < g.carried {
			return fmt.Sprintf("%d are not, and %d of %d were lost", missing, lost(latest), g.carried)
		}
		return ""
	})
	n := lost(g.observer.latest())
	left, err := g.ledger.sessions()
	require.NoError(g.t, err)
	if slices.ContainsFunc(g.others, func(pid int32) bool { return !slices.Contains(left, pid) }) {
		g.t.Log("another session ended in this round, by its lease: the machine is busy")
		return
	}
	assert.LessOrEqual(g.t, n, g.carried+listed/len(g.nodes)/4, "more was lost than the session carried, and a few that moved")
}

// restart is the server, and with it all sessions.
func restart(g *game, _ *electiontest.Node) func() {
	g.restartServer()
	return func() {}
}

// deploy stops one node after the other in good order, and starts it with another list.
func deploy(g *game, _ *electiontest.Node) func() {
	g.first = shifted - g.first
	for _, n := range g.nodes {
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
func awaitList(g *game, _ map[int]tenure, _ time.Time) {
	g.await("the shards of a list to be owned", func(latest map[int]tenure, since time.Time) string {
		if parts, missing := g.parts(latest, since); missing > 0 {
			return fmt.Sprintf("they own %v, and nobody %d", parts, missing)
		}
		return ""
	})
}

// halfDeploy gives half of the nodes another list, and later the rest.
func halfDeploy(g *game, _ *electiontest.Node) func() {
	g.first = shifted - g.first
	half := len(g.nodes) / 2
	for _, n := range g.nodes[:half] {
		g.deployTo(n)
	}
	return func() {
		for _, n := range g.nodes[half:] {
			g.deployTo(n)
		}
	}
}

// awaitPeace waits until the shards of both lists are owned, each by a node that knows it, and looks whether they stay.
func awaitPeace(g *game, _ map[int]tenure, _ time.Time) {
	wrong := func(latest map[int]tenure, since time.Time) string {
		missing, strangers := 0, 0
		for shard := range listed + shifted {
			r := latest[shard]
			if !r.last.After(since) || r.pid != g.nodes[r.node].PID() {
				missing++
				continue
			}
			first := 0
			_, _ = fmt.Sscan(g.nodes[r.node].Job.Settings[settingFirst], &first)
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
	for shard, all := range g.observer.since(began) {
		assert.LessOrEqual(g.t, len(all), 2, "shard %d moves to and fro between two fleets", shard)
	}
}
