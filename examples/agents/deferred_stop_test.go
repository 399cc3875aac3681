package agents_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// stopping is a replica with an agent that works on a command and will stop.
type stopping struct {
	*replica
	agents.HookReply
	transcript string
}

func startStopping(t *testing.T) stopping {
	t.Helper()
	dir := t.TempDir()
	a := start(t, agents.Config{DSN: pgtest.DSN(t), TranscriptDir: dir, StopTries: 1_000_000, StopPause: time.Millisecond})
	a.call("session-start", agents.Hook{SessionID: "s"})
	return stopping{a, a.call("user-prompt-submit", agents.Hook{SessionID: "s", Prompt: "question"}), filepath.Join(dir, "s.txt")}
}

func (s stopping) answer() {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.transcript, []byte("answer\n"), 0o600))
}

type stopResult struct {
	completed bool
	err       error
}

func (s stopping) deferStop() <-chan stopResult {
	c := make(chan stopResult, 1)
	go func() {
		completed, err := s.DeferredStop(s.t.Context(), s.AgentID, s.CommandID)
		c <- stopResult{completed, err}
	}()
	return c
}

func (s stopping) state() string {
	s.t.Helper()
	return ask[string](s.replica, `SELECT state FROM hooks.commands WHERE id = $1`, s.CommandID)
}

func (s stopping) turns() string {
	s.t.Helper()
	return ask[string](s.replica, `SELECT string_agg(text, ' ' ORDER BY id) FROM hooks.turns WHERE command_id = $1`, s.CommandID)
}

func TestScenario_DeferredStopAfterSessionEndCompletesCommand(t *testing.T) {
	t.Parallel()
	s := startStopping(t)
	stop := s.deferStop()

	release := s.stall(s.AgentID)
	end := s.send("session-end", agents.Hook{SessionID: "s"})
	eventually(t, func() bool { return s.Locker().Stats().Held == 1 }, "session-end has the lock: the deferred stop waits without it")
	s.answer()
	eventually(t, func() bool { return s.Locker().Stats().Waiting == 1 }, "the deferred stop saw an open command and wants the lock")
	assert.Equal(t, agents.Processing, s.state())
	release()
	done(t, end)

	got := <-stop
	require.NoError(t, got.err)
	assert.False(t, got.completed, "it read the command again and found it complete")
	assert.Equal(t, agents.Complete, s.state())
	assert.Equal(t, "question", s.turns(), "it changed nothing")
}

func TestScenario_DeferredStopCompletesBeforeSessionEnd(t *testing.T) {
	t.Parallel()
	s := startStopping(t)
	s.answer()
	release := s.stall(s.AgentID)
	stop := s.deferStop()
	eventually(t, func() bool { return s.Locker().Stats().Held == 1 }, "the deferred stop has the lock")
	end := s.send("session-end", agents.Hook{SessionID: "s"})
	eventually(t, func() bool { return s.Locker().Stats().Waiting == 1 }, "session-end waits")
	release()

	got := <-stop
	require.NoError(t, got.err)
	assert.True(t, got.completed)
	completed := ask[time.Time](s.replica, `SELECT completed_at FROM hooks.commands WHERE id = $1`, s.CommandID)
	assert.Equal(t, agents.Complete, done(t, end).CommandState, "session-end found the command complete")
	assert.Equal(t, completed, ask[time.Time](s.replica, `SELECT completed_at FROM hooks.commands WHERE id = $1`, s.CommandID))
	assert.Equal(t, "question answer", s.turns())
	assert.True(t, ask[bool](s.replica, `SELECT ended_at IS NOT NULL FROM hooks.agents`))
}

func TestAStopIsDeferredUntilTheTranscriptHasTheAnswer(t *testing.T) {
	t.Parallel()
	s := startStopping(t)
	assert.Equal(t, agents.Processing, s.call("stop", agents.Hook{SessionID: "s"}).CommandState)
	assert.Zero(t, s.Locker().Stats().Held, "it waits without the lock")
	s.answer()
	eventually(t, func() bool { return s.state() == agents.Complete }, "the command is completed in the background")
	assert.Equal(t, "question answer", s.turns())
	eventually(t, func() bool {
		return ask[bool](s.replica, `SELECT EXISTS (SELECT FROM hooks.turns WHERE summary = 'answer')`)
	}, "the answer is summarised")

	second := s.call("user-prompt-submit", agents.Hook{SessionID: "s"})
	assert.NotEqual(t, s.CommandID, second.CommandID)
	assert.Equal(t, agents.Processing, s.call("stop", agents.Hook{SessionID: "s"}).CommandState, "an older answer does not count")
}

func TestADeferredStopThatFindsNoAnswerCompletesTheCommandAfterItsLastTry(t *testing.T) {
	t.Parallel()
	a := start(t, agents.Config{DSN: pgtest.DSN(t), TranscriptDir: t.TempDir(), StopTries: 3, StopPause: time.Millisecond})
	a.call("session-start", agents.Hook{SessionID: "s"})
	x := a.call("user-prompt-submit", agents.Hook{SessionID: "s"})
	completed, err := a.DeferredStop(t.Context(), x.AgentID, x.CommandID)
	require.NoError(t, err)
	assert.True(t, completed)
}

func TestADeferredStopThatMeetsContentionIsRetriedUntilItIsDone(t *testing.T) {
	t.Parallel()
	dsn, dir := pgtest.DSN(t), t.TempDir()
	a := start(t, agents.Config{
		DSN: dsn, TranscriptDir: dir, LockTimeout: 50 * time.Millisecond,
		StopTries: 1, StopPause: time.Millisecond, WorkerInterval: time.Millisecond,
	})
	b := start(t, agents.Config{DSN: dsn})
	b.call("session-start", agents.Hook{SessionID: "s"})
	x := b.call("user-prompt-submit", agents.Hook{SessionID: "s", Prompt: "question"})
	s := stopping{a, x, filepath.Join(dir, "s.txt")}
	s.answer()

	release := b.hold(x.AgentID)
	before := a.Locker().Stats().Timeouts
	stop := s.deferStop()
	eventually(t, func() bool { return len(stop) > 0 || a.Locker().Stats().Timeouts >= before+3 }, "the lock is asked for again and again")
	require.Empty(t, stop, "the stop is not dropped")
	assert.Equal(t, agents.Processing, s.state())
	release()
	got := <-stop
	require.NoError(t, got.err)
	assert.True(t, got.completed)
	assert.Equal(t, "question answer", s.turns(), "once")
}

func TestADeferredStopThatMeetsContentionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := startStopping(t)
	s.answer()
	release := s.hold(s.AgentID)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.DeferredStop(ctx, s.AgentID, s.CommandID)
		ended <- err
	}()
	eventually(t, func() bool { return s.Locker().Stats().Waiting == 1 }, "it waits")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	release()
	assert.Equal(t, agents.Processing, s.state())
}
