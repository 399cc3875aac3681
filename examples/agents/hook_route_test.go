package agents_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/middleware"
)

func TestScenario_ConcurrentHooksForSameAgent(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b := start(t, agents.Config{DSN: dsn, Replica: "a"}), start(t, agents.Config{DSN: dsn, Replica: "b"})
	x := a.call("session-start", agents.Hook{SessionID: "s"})

	release := a.stall(x.AgentID)
	first := a.send("user-prompt-submit", agents.Hook{SessionID: "s", Prompt: "one"})
	eventually(t, func() bool { return a.Locker().Stats().Held == 1 }, "the first hook has the lock")
	second := b.send("user-prompt-submit", agents.Hook{SessionID: "s", Prompt: "two"})
	eventually(t, func() bool { return b.Locker().Stats().Waiting == 1 }, "the second hook waits")
	pending(t, first)
	pending(t, second)
	assert.Zero(t, b.Locker().Stats().Held)
	release()

	one, two := done(t, first), done(t, second)
	assert.Equal(t, "a", one.Replica)
	assert.Equal(t, "b", two.Replica)
	assert.Equal(t, one.CommandID, two.CommandID, "the second hook sees the command that the first one opened")
	assert.Equal(t, "one two", ask[string](a, `SELECT string_agg(text, ' ' ORDER BY id) FROM hooks.turns WHERE command_id = $1`, one.CommandID))
}

func TestScenario_HooksForDifferentAgents(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b := start(t, agents.Config{DSN: dsn}), start(t, agents.Config{DSN: dsn})
	x := a.call("session-start", agents.Hook{SessionID: "x"})
	a.call("session-start", agents.Hook{SessionID: "y"})

	release := a.stall(x.AgentID)
	stalled := a.send("pre-tool-use", agents.Hook{SessionID: "x"})
	eventually(t, func() bool { return a.Locker().Stats().Held == 1 }, "the hook for x has its lock")
	a.call("pre-tool-use", agents.Hook{SessionID: "y"})
	b.call("pre-tool-use", agents.Hook{SessionID: "y"})
	pending(t, stalled)
	release()
	done(t, stalled)
}

func TestScenario_ReadOnlyHookRoute(t *testing.T) {
	t.Parallel()
	a := start(t, agents.Config{DSN: pgtest.DSN(t), Replica: "a"})
	x := a.call("session-start", agents.Hook{SessionID: "s"})

	defer a.hold(x.AgentID)()
	before := a.Locker().Stats().Acquired
	y := a.do(http.MethodGet, "/hook/status", nil)
	require.Equal(t, http.StatusOK, y.status, y.body)
	var status agents.Status
	y.decode(t, &status)
	assert.Equal(t, agents.Status{Replica: "a", ActiveAgents: 1, LocksHeld: 1}, status)
	assert.Equal(t, before, a.Locker().Stats().Acquired, "no lock was taken")
}

var mutating = []string{
	"session-start", "session-end", "user-prompt-submit", "stop", "notification", "pre-tool-use", "post-tool-use", "permission-request",
}

func TestAllEightHooksTakeTheAgentsLock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a := start(t, agents.Config{DSN: dsn, Replica: "a", LockTimeout: 50 * time.Millisecond})
	b := start(t, agents.Config{DSN: dsn, Replica: "b"})
	x := a.call("session-start", agents.Hook{SessionID: "s"})
	release := b.hold(x.AgentID)
	for _, hook := range mutating {
		var p middleware.ProblemError
		for tries := 0; tries < 10 && p.Holder == nil; tries++ { // on a busy machine the answer may lack the holder
			y := <-a.send(hook, agents.Hook{SessionID: "s"})
			require.Equal(t, http.StatusLocked, y.status, "%s: %s", hook, y.body)
			y.decode(t, &p)
		}
		require.NotNil(t, p.Holder, hook)
		assert.Equal(t, "agents/b", p.Holder.ApplicationName, hook)
	}
	release()
	for _, hook := range mutating {
		before := b.Locker().Stats().Acquired // b, because a's LockTimeout is too short for a slow machine
		b.call(hook, agents.Hook{SessionID: "s"})
		assert.Equal(t, before+1, b.Locker().Stats().Acquired, hook)
	}
}

func TestAHookWithoutAKnownSessionIsRefusedBeforeAnyLock(t *testing.T) {
	t.Parallel()
	a := start(t, agents.Config{DSN: pgtest.DSN(t)})
	before := a.Locker().Stats().Acquired
	for _, hook := range mutating {
		for _, session := range []string{"", "../secret", "a b", "nul\x00"} {
			y := <-a.send(hook, agents.Hook{SessionID: session})
			assert.Equal(t, http.StatusBadRequest, y.status, "%s %q: %s", hook, session, y.body)
		}
		y := a.do(http.MethodPost, "/hook/"+hook, "not an object")
		assert.Equal(t, http.StatusBadRequest, y.status, "%s: %s", hook, y.body)
		if hook != "session-start" {
			y := <-a.send(hook, agents.Hook{SessionID: "unknown"})
			assert.Equal(t, http.StatusNotFound, y.status, "%s: %s", hook, y.body)
		}
	}
	assert.Equal(t, before, a.Locker().Stats().Acquired)
	assert.Zero(t, ask[int](a, `SELECT count(*) FROM hooks.agents`))
}

func TestACommandGoesThroughItsStates(t *testing.T) {
	t.Parallel()
	a := start(t, agents.Config{DSN: pgtest.DSN(t)})
	hook := agents.Hook{SessionID: "s", Prompt: "do it", Message: "may I?"}
	a.call("session-start", hook)
	for _, step := range []struct{ hook, state string }{
		{"user-prompt-submit", agents.Processing},
		{"pre-tool-use", agents.Processing},
		{"permission-request", agents.AwaitingInput},
		{"post-tool-use", agents.Processing},
		{"notification", agents.AwaitingInput},
		{"user-prompt-submit", agents.Processing},
		{"stop", agents.Complete},
		{"post-tool-use", agents.Complete},
		{"session-end", agents.Complete},
	} {
		assert.Equal(t, step.state, a.call(step.hook, hook).CommandState, step.hook)
	}
	assert.Equal(t, 1, ask[int](a, `SELECT count(*) FROM hooks.commands`))
	assert.True(t, ask[bool](a, `SELECT ended_at IS NOT NULL FROM hooks.agents`))
	a.call("session-start", hook)
	assert.True(t, ask[bool](a, `SELECT ended_at IS NULL FROM hooks.agents`), "a session can be resumed")
}

func TestAHookThatLostItsLockCommitsNothing(t *testing.T) {
	t.Parallel()
	a := start(t, agents.Config{DSN: pgtest.DSN(t)})
	x := a.call("session-start", agents.Hook{SessionID: "s"})

	release := a.stall(x.AgentID)
	hook := a.send("user-prompt-submit", agents.Hook{SessionID: "s", Prompt: "late"})
	eventually(t, func() bool { return a.Locker().Stats().Held == 1 }, "the hook has the lock")
	a.exec(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	eventually(t, func() bool { return a.Locker().Stats().Lost == 1 }, "the loss is known")
	release()
	y := <-hook
	assert.Equal(t, http.StatusServiceUnavailable, y.status, y.body)
	var p middleware.ProblemError
	y.decode(t, &p)
	assert.Equal(t, middleware.TypeLost, p.Type)
	assert.Zero(t, ask[int](a, `SELECT count(*) FROM hooks.turns`))
}
