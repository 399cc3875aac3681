package agents_test

import (
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func (r *replica) handOff(from, to string) answer {
	return r.do(http.MethodPost, "/api/handoff", agents.Handoff{From: from, To: to})
}

// The hand-off has no lock in memory: the locks of both agents guard it, at every replica.
func TestAHandoffWaitsForTheLocksOfBothAgents(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b := start(t, agents.Config{DSN: dsn, LockTimeout: 50 * time.Millisecond}), start(t, agents.Config{DSN: dsn})
	x, y := b.call("session-start", agents.Hook{SessionID: "x"}), b.call("session-start", agents.Hook{SessionID: "y"})
	b.call("user-prompt-submit", agents.Hook{SessionID: "x", Prompt: "build it"})
	for _, busy := range []int32{x.AgentID, y.AgentID} {
		release := b.hold(busy)
		assert.Equal(t, http.StatusLocked, a.handOff("x", "y").status)
		release()
	}
	assert.Zero(t, a.Locker().Stats().Held, "none is left behind")

	got := b.handOff("x", "y")
	require.Equal(t, http.StatusOK, got.status, got.body)
	assert.Equal(t, agents.Processing, b.call("pre-tool-use", agents.Hook{SessionID: "y"}).CommandState)
	assert.Equal(t, agents.Complete, b.call("pre-tool-use", agents.Hook{SessionID: "x"}).CommandState)
	assert.Equal(t, y.AgentID, ask[int32](a, `SELECT agent_id FROM hooks.commands JOIN hooks.turns t ON t.command_id = commands.id
		WHERE state = 'processing' AND text = 'build it'`))

	assert.Equal(t, http.StatusConflict, b.handOff("x", "y").status, "x has nothing left")
	assert.Equal(t, http.StatusNotFound, a.handOff("x", "nobody").status)
	assert.Equal(t, http.StatusBadRequest, a.handOff("x", "x").status)
}

func TestHandoffsInOppositeDirectionsAtTwoReplicasLoseNothing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b := start(t, agents.Config{DSN: dsn}), start(t, agents.Config{DSN: dsn})
	a.call("session-start", agents.Hook{SessionID: "x"})
	a.call("session-start", agents.Hook{SessionID: "y"})
	a.call("user-prompt-submit", agents.Hook{SessionID: "x", Prompt: "build it"})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			r, from, to := a, "x", "y"
			if i%2 == 1 {
				r, from, to = b, "y", "x"
			}
			got := r.handOff(from, to)
			assert.Contains(t, []int{http.StatusOK, http.StatusConflict}, got.status, got.body)
		})
	}
	all.Wait()
	assert.Equal(t, 1, ask[int](a, `SELECT count(*) FROM hooks.commands WHERE state <> 'complete'`), "one agent has the command")
}

// The same holds for the capture of progress: when one hook has captured a line, the next
// hook finds it captured.
func TestConcurrentHooksCaptureEachLineOfProgressOnce(t *testing.T) {
	t.Parallel()
	dsn, dir := pgtest.DSN(t), t.TempDir()
	config := agents.Config{DSN: dsn, TranscriptDir: dir}
	a, b := start(t, config), start(t, config)
	a.call("session-start", agents.Hook{SessionID: "s"})
	x := a.call("user-prompt-submit", agents.Hook{SessionID: "s", Prompt: "build it"})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "s.txt"), []byte("one\ntwo\nthree\n"), 0o600))
	release := a.hold(x.AgentID)
	var hooks []<-chan answer
	for range 4 {
		hooks = append(hooks, a.send("post-tool-use", agents.Hook{SessionID: "s"}), b.send("pre-tool-use", agents.Hook{SessionID: "s"}))
	}
	eventually(t, func() bool { return a.Locker().Stats().Waiting == 4 && b.Locker().Stats().Waiting == 4 }, "all wait")
	release()
	for _, hook := range hooks {
		done(t, hook)
	}
	assert.Equal(t, "build it one two three", ask[string](a, `SELECT string_agg(text, ' ' ORDER BY id) FROM hooks.turns`))
}
