//go:build integration

package shards

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/electiontest"
)

// perGame is how many rounds the same nodes play.
const perGame = 10

// Whatever happens to nodes, no write of an ended term commits once another has begun, nobody works
// on a shard in an ended term for longer than is stated, each is owned again soon, and evenly.
func TestEachShardHasOneOwnerWhateverHappens(t *testing.T) {
	g := newGame(t)
	var bag []fault
	for rounds, nodes := electiontest.Rounds(t), 3; rounds > 0; rounds, nodes = rounds-perGame, 3+g.random.IntN(7) {
		g.open(nodes, func(j *electiontest.Job) { j.Stubborn = j.Node%3 > 0 })
		for range min(perGame, rounds) {
			if len(bag) == 0 {
				for _, i := range g.random.Perm(len(faults)) {
					bag = append(bag, faults[i])
				}
			}
			g.round(bag[0])
			bag = bag[1:]
		}
		g.close()
	}
	g.summary()
	writes, stale, back := g.ledger.verdict(t)
	t.Logf("%d writes, %d of them stale", writes, stale)
	assert.Empty(t, g.late, "operations in a term, after the first operation of a later one")
	assert.Zero(t, stale, "writes of a term after a later one had begun")
	assert.Zero(t, back, "writes after those of a later term")
	assert.Zero(t, g.counts["committed"], "writes in a context that had ended")
	assert.Positive(t, writes)
	assert.Positive(t, g.counts["refused"], "nobody went on after the end of a term")
}

// The control: without guards, and with work that does not look at its context, both checkers find what
// they look for.
func TestWithoutGuardsTermsOfShardsOutliveTheirEnds(t *testing.T) {
	g := newGame(t)
	g.open(3, func(j *electiontest.Job) {
		j.Stubborn, j.Reckless = true, true
		j.Settings[settingNodes] = "1" // more transactions
	})
	cutOff, _ := faultNamed("cut off")
	stale, back := 0, 0
	for round := 0; stale == 0 || back == 0 || len(g.late) == 0; round++ {
		require.Less(t, round, 20, "nothing went wrong: the checkers see nothing")
		g.round(cutOff)
		_, stale, back = g.ledger.verdict(t)
	}
	t.Logf("control: %d stale writes, %d operations too late, such as: %s", stale, len(g.late), g.late[0])
	g.close()
}

// The control: where nodes own what they believe to be theirs, two own one shard.
func TestNodesThatTrustMembershipInsteadOfLocksBothOwnAShard(t *testing.T) {
	g := newGame(t)
	g.start(3, func(j *electiontest.Job) { j.Settings[settingTrusting] = "true" }) // which need not settle
	began := time.Now()
	for restarted := began; len(g.late) == 0; electiontest.Pause(t.Context(), 10*time.Millisecond) {
		require.Less(t, time.Since(began), patience, "nobody owns what another does: the checkers see nothing")
		if time.Since(restarted) > 2*lease {
			g.nodes[0].Stop()
			g.nodes[0].Start()
			restarted = time.Now()
		}
		operations, faulty := g.observer.drain()
		for _, l := range operations {
			g.late = append(g.late, l.String())
		}
		g.late = append(g.late, faulty...)
	}
	t.Logf("control: %d operations on a shard of another, such as: %s", len(g.late), g.late[0])
}
