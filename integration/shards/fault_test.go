//go:build integration

package shards

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/electiontest"
)

// A fault is what happens in a round. Its bounds are those of the time until each shard is owned again.
type fault struct {
	electiontest.Fault

	victim *electiontest.Node // nil = any

	// owned waits until all shards are owned again. nil = all that the victim owned have new owners.
	owned func(before map[int]judge.Tenure, struck time.Time)
}

// noticeBound is how long after its successor's first operation a node may act whose session the
// server has ended: it is told in about a millisecond. 5 ms × 20, for machines that have other work.
const noticeBound = 20 * 5 * time.Millisecond

// allFaults are all that there are; their bounds are those that docs/reference/shards.md states. A server that hears nothing ends a
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
			if latest[shard].Term != was.Term && was.Last.After(struck.Add(-lease)) {
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
