package agents

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
)

// A stop is that of a replica with an agent that works on a command, and whose transcript the test writes.
type stop struct {
	*replica
	db     *dbtest.Database
	answer func()
}

func startStop(t *testing.T, config Config) stop {
	t.Helper()
	dir := t.TempDir()
	config.Transcripts, config.StopPause, config.WorkerInterval = os.DirFS(dir), time.Millisecond, time.Millisecond
	if config.StopTries == 0 {
		config.StopTries = 1_000_000
	}
	db, _, b := pair(t, Config{})
	b.call("user-prompt-submit", Hook{SessionID: "x", Prompt: "question"})
	return stop{start(t, db, config), db, func() { require.NoError(t, os.WriteFile(dir+"/x.txt", []byte("answer\n"), 0o600)) }}
}

type stopResult struct {
	completed bool
	err       error
}

func (s stop) later(ctx context.Context) <-chan stopResult {
	c := make(chan stopResult, 1)
	go func() {
		completed, err := s.deferredStop(ctx, &Agent{ID: 1, SessionID: "x"}, &Command{ID: 1})
		c <- stopResult{completed, err}
	}()
	return c
}

func state(db *dbtest.Database) string {
	return dbtest.Ask[string](db, `SELECT state FROM hooks.commands WHERE id = 1`)
}

func TestScenario_DeferredStopAfterSessionEndCompletesCommand(t *testing.T) {
	t.Parallel()
	s := startStop(t, Config{})
	stopped := s.later(t.Context())
	release := s.stall(1)
	end := s.send("session-end", Hook{SessionID: "x"})
	s.holds() // the deferred stop waits without the lock
	s.answer()
	s.waits() // it saw an open command and wants the lock
	assert.Equal(t, Processing, state(s.db))
	release()
	done(t, end)
	assert.Equal(t, stopResult{false, nil}, <-stopped, "it read the command again and found it complete")
	assert.Equal(t, Complete, state(s.db))
	assert.Equal(t, "question", said(s.db), "it changed nothing")
}

func TestScenario_DeferredStopCompletesBeforeSessionEnd(t *testing.T) {
	t.Parallel()
	s := startStop(t, Config{})
	s.answer()
	release := s.stall(1)
	stopped := s.later(t.Context())
	s.holds()
	end := s.send("session-end", Hook{SessionID: "x"})
	s.waits()
	release()
	assert.Equal(t, stopResult{true, nil}, <-stopped)
	completed := dbtest.Ask[time.Time](s.db, `SELECT completed_at FROM hooks.commands`)
	assert.Equal(t, Complete, done(t, end).CommandState, "session-end found the command complete")
	assert.Equal(t, completed, dbtest.Ask[time.Time](s.db, `SELECT completed_at FROM hooks.commands`))
	assert.Equal(t, "question answer", said(s.db))
	assert.Equal(t, "x", dbtest.Ask[string](s.db, `SELECT session_id FROM hooks.agents WHERE ended_at IS NOT NULL`))
}

func TestAStopIsDeferredUntilTheTranscriptHasTheAnswer(t *testing.T) {
	t.Parallel()
	s := startStop(t, Config{})
	assert.Equal(t, Processing, s.call("stop", Hook{SessionID: "x"}).CommandState)
	assert.Zero(t, s.locker.Stats().Held, "it waits without the lock")
	s.answer()
	await.Until(t, await.Patience, func() bool { return state(s.db) == Complete }, "the command is completed in the background")
	assert.Equal(t, "question answer", said(s.db))
	await.Until(t, await.Patience, func() bool {
		return dbtest.Ask[bool](s.db, `SELECT EXISTS (SELECT FROM hooks.turns WHERE summary = 'answer')`)
	}, "the answer is summarised")
	assert.NotEqual(t, int64(1), s.call("user-prompt-submit", Hook{SessionID: "x"}).CommandID)
	assert.Equal(t, Processing, s.call("stop", Hook{SessionID: "x"}).CommandState, "an older answer does not count")
}

func TestADeferredStopThatFindsNoAnswerCompletesTheCommandAfterItsLastTry(t *testing.T) {
	t.Parallel()
	assert.Equal(t, stopResult{true, nil}, <-startStop(t, Config{StopTries: 3}).later(t.Context()))
}

func TestADeferredStopThatMeetsContentionIsRetriedUntilItIsDone(t *testing.T) {
	t.Parallel()
	s := startStop(t, Config{LockTimeout: 50 * time.Millisecond})
	s.answer()
	release := start(t, s.db, Config{}).hold(1)
	stopped := s.later(t.Context())
	await.Until(t, await.Patience, func() bool { return len(stopped) > 0 || s.locker.Stats().Timeouts >= 3 }, "the lock is asked for again and again")
	require.Empty(t, stopped, "the stop is not dropped")
	assert.Equal(t, Processing, state(s.db))
	release()
	assert.Equal(t, stopResult{true, nil}, <-stopped)
	assert.Equal(t, "question answer", said(s.db), "once")
}

func TestADeferredStopThatMeetsContentionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := startStop(t, Config{})
	s.answer()
	defer s.hold(1)()
	ctx, cancel := context.WithCancel(t.Context())
	stopped := s.later(ctx)
	s.waits()
	cancel()
	require.ErrorIs(t, (<-stopped).err, context.Canceled)
	assert.Equal(t, Processing, state(s.db))
}
