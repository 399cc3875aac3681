package agents

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/middleware"
)

func TestScenario_ConcurrentHooksForSameAgent(t *testing.T) {
	t.Parallel()
	db, a, b := pair(t, Config{})
	release := a.stall(1)
	first := a.send("user-prompt-submit", Hook{SessionID: "x", Prompt: "one"})
	a.holds()
	second := b.send("user-prompt-submit", Hook{SessionID: "x", Prompt: "two"})
	b.waits()
	assert.Zero(t, len(first)+len(second), "neither is answered")
	assert.Zero(t, b.locker.Stats().Held)
	release()

	one, two := done(t, first), done(t, second)
	assert.Equal(t, "a", one.Replica)
	assert.Equal(t, "b", two.Replica)
	assert.Equal(t, one.CommandID, two.CommandID, "the second hook sees the command that the first one opened")
	assert.Equal(t, "one two", said(db))
}

func TestScenario_ReadOnlyHookRoute(t *testing.T) {
	t.Parallel()
	_, a, _ := pair(t, Config{})
	defer a.hold(1)()
	before := a.locker.Stats().Acquired
	var status Status
	a.do(http.MethodGet, "/hook/status", nil).Decode(&status)
	assert.Equal(t, Status{Replica: "a", ActiveAgents: 2, LocksHeld: 1}, status)
	assert.Equal(t, before, a.locker.Stats().Acquired, "no lock was taken")
}

var mutating = []string{
	"session-start", "session-end", "user-prompt-submit", "stop", "notification", "pre-tool-use", "post-tool-use", "permission-request",
}

func TestAllEightHooksTakeTheAgentsLock(t *testing.T) {
	t.Parallel()
	db, _, b := pair(t, Config{})
	a := start(t, db, Config{LockTimeout: 50 * time.Millisecond})
	release := b.hold(1)
	for _, hook := range mutating {
		var p middleware.ProblemError
		// On a busy machine the answer may lack the holder, or PostgreSQL may give none in time.
		for tries := 0; tries < 10 && p.Holder == nil; tries++ {
			y := <-a.send(hook, Hook{SessionID: "x"})
			if y.Status != http.StatusServiceUnavailable {
				require.Equal(t, http.StatusLocked, y.Status, "%s: %s", hook, y.Body)
				y.Decode(&p)
			}
		}
		require.NotNil(t, p.Holder, hook)
		assert.Equal(t, "agents/b", p.Holder.ApplicationName, hook)
	}
	release()
	for _, hook := range mutating {
		before := b.locker.Stats().Acquired // b, because a's LockTimeout is too short for a slow machine
		b.call(hook, Hook{SessionID: "x"})
		assert.Equal(t, before+1, b.locker.Stats().Acquired, hook)
	}
}

func TestAHookWithoutAKnownSessionIsRefusedBeforeAnyLock(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	a := start(t, db, Config{})
	before := a.locker.Stats().Acquired
	for _, hook := range mutating {
		for _, session := range []string{"", "../secret", "a b", "nul\x00"} {
			assert.Equal(t, http.StatusBadRequest, (<-a.send(hook, Hook{SessionID: session})).Status, "%s %q", hook, session)
		}
		assert.Equal(t, http.StatusBadRequest, a.do(http.MethodPost, "/hook/"+hook, "not an object").Status, hook)
		if hook != "session-start" {
			assert.Equal(t, http.StatusNotFound, (<-a.send(hook, Hook{SessionID: "unknown"})).Status, hook)
		}
	}
	assert.Equal(t, before, a.locker.Stats().Acquired)
	assert.Zero(t, dbtest.Ask[int](db, `SELECT count(*) FROM hooks.agents`))
}

func TestACommandGoesThroughItsStates(t *testing.T) {
	t.Parallel()
	db, a, _ := pair(t, Config{})
	hook := Hook{SessionID: "x", Prompt: "do it", Message: "may I?"}
	for _, step := range []struct{ hook, state string }{
		{"user-prompt-submit", Processing},
		{"pre-tool-use", Processing},
		{"permission-request", AwaitingInput},
		{"post-tool-use", Processing},
		{"notification", AwaitingInput},
		{"user-prompt-submit", Processing},
		{"stop", Complete},
		{"post-tool-use", Complete},
		{"session-end", Complete},
	} {
		assert.Equal(t, step.state, a.call(step.hook, hook).CommandState, step.hook)
	}
	assert.Equal(t, 1, dbtest.Ask[int](db, `SELECT count(*) FROM hooks.commands`))
	assert.Equal(t, "x", dbtest.Ask[string](db, `SELECT session_id FROM hooks.agents WHERE ended_at IS NOT NULL`))
	a.call("session-start", hook)
	assert.Zero(t, dbtest.Ask[int](db, `SELECT count(*) FROM hooks.agents WHERE ended_at IS NOT NULL`), "a session can be resumed")
}

func (r *replica) handOff(from, to string) int {
	return r.do(http.MethodPost, "/api/handoff", Handoff{From: from, To: to}).Status
}

// The hand-off has no lock in memory: the locks of both agents guard it, at every replica.
func TestAHandoffWaitsForTheLocksOfBothAgents(t *testing.T) {
	t.Parallel()
	db, _, b := pair(t, Config{})
	a := start(t, db, Config{LockTimeout: 50 * time.Millisecond})
	b.call("user-prompt-submit", Hook{SessionID: "x", Prompt: "build it"})
	for _, busy := range []int32{1, 2} {
		release := b.hold(busy)
		status := http.StatusServiceUnavailable
		for tries := 0; tries < 10 && status == http.StatusServiceUnavailable; tries++ { // PostgreSQL is busy
			status = a.handOff("x", "y")
		}
		assert.Equal(t, http.StatusLocked, status)
		release()
	}
	assert.Zero(t, a.locker.Stats().Held, "none is left behind")

	require.Equal(t, http.StatusOK, b.handOff("x", "y"))
	assert.Equal(t, Processing, b.call("pre-tool-use", Hook{SessionID: "y"}).CommandState)
	assert.Equal(t, Complete, b.call("pre-tool-use", Hook{SessionID: "x"}).CommandState)
	assert.EqualValues(t, 2, dbtest.Ask[int32](db, `SELECT agent_id FROM hooks.commands JOIN hooks.turns t ON t.command_id = commands.id
		WHERE state = 'processing' AND text = 'build it'`))

	assert.Equal(t, http.StatusConflict, b.handOff("x", "y"), "x has nothing left")
	assert.Equal(t, http.StatusNotFound, a.handOff("x", "nobody"))
	assert.Equal(t, http.StatusBadRequest, a.handOff("x", "x"))
}

// The same holds for the capture of progress: when one hook has captured a line, the next
// hook finds it captured.
func TestConcurrentHooksCaptureEachLineOfProgressOnce(t *testing.T) {
	t.Parallel()
	db, a, b := pair(t, Config{Transcripts: fstest.MapFS{"x.txt": {Data: []byte("one\ntwo\nthree\n")}}})
	a.call("user-prompt-submit", Hook{SessionID: "x", Prompt: "build it"})
	release := a.hold(1)
	var hooks []<-chan demokit.Answer
	for range 4 {
		hooks = append(hooks, a.send("post-tool-use", Hook{SessionID: "x"}), b.send("pre-tool-use", Hook{SessionID: "x"}))
	}
	await.Until(t, await.Patience, func() bool { return a.locker.Stats().Waiting == 4 && b.locker.Stats().Waiting == 4 }, "all wait")
	release()
	for _, hook := range hooks {
		done(t, hook)
	}
	assert.Equal(t, "build it one two three", said(db))
}

func TestScenario_StaleOrmReadPrevention(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	db := dbtest.New(t)
	a := start(t, db, Config{Skills: func(context.Context, *Agent) (string, error) {
		asked.Add(1)
		return "write tests first", nil
	}})
	x := a.call("session-start", Hook{SessionID: "s"})
	assert.Equal(t, "write tests first", x.Skills, "session-start injects")

	stale := &Agent{ID: x.AgentID} // read before the injection
	skills, err := a.inject(t.Context(), stale)
	require.NoError(t, err)
	assert.Empty(t, skills)
	assert.NotNil(t, stale.PromptInjectedAt, "it was read again")
	assert.EqualValues(t, 1, asked.Load())

	db.Exec(`UPDATE hooks.agents SET prompt_injected_at = NULL`)
	skills, err = a.inject(t.Context(), stale)
	require.NoError(t, err)
	assert.NotEmpty(t, skills, "control: the row decides, also the other way round")
}

func TestTheFirstHookThatFindsSkillsInjectsThemAndNoOther(t *testing.T) {
	t.Parallel()
	var now atomic.Value
	now.Store("")
	_, a, b := pair(t, Config{Skills: func(context.Context, *Agent) (string, error) {
		if skills := now.Load().(string); skills != "broken" {
			return skills, nil
		}
		return "", errors.New("the disk is away")
	}})
	hook := Hook{SessionID: "x"}
	now.Store("broken")
	assert.Empty(t, a.call("pre-tool-use", hook).Skills, "the hook is done all the same")
	now.Store("new skills")
	assert.Equal(t, "new skills", b.call("pre-tool-use", hook).Skills, "the next hook reads them again, at any replica")
	now.Store("newer skills")
	assert.Empty(t, a.call("post-tool-use", hook).Skills)
	assert.Empty(t, a.call("session-start", hook).Skills, "a session that is resumed has them")
	assert.Empty(t, a.call("session-end", Hook{SessionID: "y"}).Skills, "an agent that has ended gets none")
}
