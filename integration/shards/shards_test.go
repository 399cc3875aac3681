//go:build integration

package shards

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/ledgertest"
	"github.com/pglatch/pglatch/internal/test/replay"
	"github.com/pglatch/pglatch/internal/test/tally"
	"github.com/pglatch/pglatch/internal/test/trace"
)

// perGame is how many rounds the same nodes play.
const perGame = 10

// Whatever happens to nodes, no write of an ended term commits once another has begun, nobody works
// on a shard in an ended term for longer than is stated, each is owned again soon, and evenly.
func TestEachShardHasOneOwnerWhateverHappens(t *testing.T) {
	g := newTracedGame(t, replay.Start(t, "shards"))
	var bag []fault
	for rounds, nodes := electiontest.Rounds(t), 3; rounds > 0; rounds, nodes = rounds-perGame, 3+g.Random.IntN(7) {
		g.open(nodes, func(j *electiontest.Job) { j.Stubborn = j.Node%3 > 0 })
		for range min(perGame, rounds) {
			if len(bag) == 0 {
				for _, i := range g.Random.Perm(len(g.faults)) {
					bag = append(bag, g.faults[i])
				}
			}
			g.round(bag[0])
			bag = bag[1:]
		}
		g.Close()
	}
	g.summary()
	g.requireLegal()
	g.run.RequireLegal(trace.Acquired, trace.Released, trace.Lost, trace.Works, trace.Rests, trace.Commit, trace.Fault)
	ledgertest.RequireDefied(t, g.Count)
}

// The control: without guards, and with work that does not look at its context, all checkers find what
// they look for.
func TestWithoutGuardsTermsOfShardsOutliveTheirEnds(t *testing.T) {
	g := newTracedGame(t, replay.Start(t, "shards"))
	g.open(3, func(j *electiontest.Job) {
		j.Stubborn, j.Reckless = true, true
		j.Settings[settingNodes] = "1" // more transactions
	})
	for round := 0; len(g.Late()) == 0 || !g.Illegal(t) || g.run.Check() == nil; round++ {
		require.Less(t, round, 20, "nothing went wrong: the checkers see nothing")
		g.round(g.faultNamed("cut off"))
	}
	t.Logf("control: %d operations too late, such as: %s", len(g.Late()), g.Late()[0])
	tally.Control(t, "%d operations too late, and stale writes committed", len(g.Late()))
	g.run.RequireRefused()
	g.Close()
}

// The control: where nodes own what they believe to be theirs, two own one shard.
func TestNodesThatTrustMembershipInsteadOfLocksBothOwnAShard(t *testing.T) {
	g := newGame(t)
	g.start(3, func(j *electiontest.Job) { j.Settings[settingTrusting] = "true" }) // which need not settle
	began := time.Now()
	for restarted := began; ; electiontest.Pause(t.Context(), 10*time.Millisecond) {
		late, shared := g.Terms.Drain()
		if len(late)+len(shared) > 0 {
			t.Logf("control: on a shard of another: %v, %v", late, shared)
			tally.Control(t, "%d operations on a shard of another node", len(late)+len(shared))
			return
		}
		require.Less(t, time.Since(began), patience, "nobody owns what another does: the checkers see nothing")
		if time.Since(restarted) > 2*lease {
			g.Nodes[0].Stop()
			g.Nodes[0].Start()
			restarted = time.Now()
		}
	}
}
