package agents

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
)

func TestScenario_BackgroundThreadEncountersLockedAgent(t *testing.T) {
	t.Parallel()
	db, a, b := pair(t, Config{AgentTimeout: time.Minute})
	db.Exec(`UPDATE hooks.agents SET last_seen_at = now() - interval '1 hour'`)
	release := a.stall(1)
	hook := a.send("pre-tool-use", Hook{SessionID: "x"})
	a.holds()
	for _, name := range []string{"transcript_reconciler", "context_poller", "watchdog", "reaper"} { // the reaper ends y
		assert.Equal(t, tally{done: 1, skipped: 1}, b.cycle(name), name)
	}
	assert.Empty(t, hook)
	release()
	done(t, hook)
	assert.Equal(t, tally{done: 1}, b.cycle("context_poller"), "the next cycle has its turn")
	assert.Equal(t, tally{}, b.cycle("reaper"), "the hook was a sign of life")
	assert.Equal(t, "x", dbtest.Ask[string](db, `SELECT session_id FROM hooks.agents WHERE ended_at IS NULL`))
}

// A deferred constraint trigger runs at commit. So PostgreSQL itself records which advisory
// locks are held at that moment.
const noteCommits = `
CREATE TABLE hooks.commits (agent_id integer, locks bigint, own boolean);
CREATE FUNCTION hooks.note_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO hooks.commits
	SELECT NEW.id, count(*), coalesce(bool_or(classid = 1 AND objid = NEW.id AND objsubid = 2), false) FROM pg_locks
	WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER note_commit AFTER UPDATE ON hooks.agents DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION hooks.note_commit();`

type commit struct {
	AgentID int32
	Locks   int
	Own     bool
}

func commits(t *testing.T, db *dbtest.Database) []commit {
	t.Helper()
	rows, _ := db.Pool.Query(t.Context(), `DELETE FROM hooks.commits RETURNING agent_id, locks, own`)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[commit])
	require.NoError(t, err)
	return all
}

func TestScenario_ReaperCommitInsideLock(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	a := start(t, db, Config{})
	db.Exec(`INSERT INTO hooks.agents (session_id, last_seen_at) SELECT 's' || i, now() - interval '1 hour' FROM generate_series(1, 3) i`)
	db.Exec(noteCommits)

	assert.Equal(t, tally{done: 3}, a.cycle("reaper"))
	assert.Equal(t, []commit{{1, 1, true}, {2, 1, true}, {3, 1, true}}, commits(t, db),
		"each agent is committed on its own, under its own lock and no other")
	assert.Equal(t, 1, a.locker.Stats().Sessions, "the lock connection is back in the pool before the next agent")
	assert.Zero(t, a.locker.Stats().SessionsInUse)
	assert.Zero(t, dbtest.Ask[int](db, `SELECT count(*) FROM hooks.agents WHERE ended_at IS NULL`))

	db.Exec(`UPDATE hooks.agents SET pid = 0 WHERE id = 1`)
	assert.Equal(t, []commit{{1, 0, false}}, commits(t, db), "control: a commit without a lock is seen")
}

func TestTheReaperCompletesTheCommandOfASilentAgent(t *testing.T) {
	t.Parallel()
	db, a, _ := pair(t, Config{AgentTimeout: time.Minute})
	a.call("user-prompt-submit", Hook{SessionID: "x"})
	assert.Equal(t, tally{}, a.cycle("reaper"))
	db.Exec(`UPDATE hooks.agents SET last_seen_at = now() - interval '61 s' WHERE id = 1`)
	assert.Equal(t, tally{done: 1}, a.cycle("reaper"))
	assert.Equal(t, Complete, state(db))
}

func TestTheReconcilerAndThePollerReadTheTranscript(t *testing.T) {
	t.Parallel()
	db, a, _ := pair(t, Config{Transcripts: fstest.MapFS{"x.txt": {Data: []byte(strings.Repeat("x", 80_000) + "\nsecond\nhalf a li")}}})
	a.call("user-prompt-submit", Hook{SessionID: "x", Prompt: "question"})
	for range 2 { // the second cycle finds nothing new
		a.cycle("transcript_reconciler")
		a.cycle("context_poller")
		assert.Equal(t, 3, dbtest.Ask[int](db, `SELECT count(*) FROM hooks.turns`))
	}
	assert.Equal(t, "second", dbtest.Ask[string](db, `SELECT text FROM hooks.turns ORDER BY id DESC LIMIT 1`))
	assert.Equal(t, 10, dbtest.Ask[int](db, `SELECT context_percent FROM hooks.agents WHERE id = 1`))
	await.Until(t, await.Patience, func() bool {
		return dbtest.Ask[int](db, `SELECT count(*) FROM hooks.turns WHERE summary = text AND actor = 'agent'`) == 2
	}, "the new turns are summarised")
}

func TestTheWatchdogEndsAnAgentWhoseProcessIsGone(t *testing.T) {
	t.Parallel()
	db, a, _ := pair(t, Config{})
	gone, err := os.StartProcess("/bin/true", nil, &os.ProcAttr{})
	require.NoError(t, err)
	a.call("session-start", Hook{SessionID: "gone", PID: gone.Pid})
	a.call("session-start", Hook{SessionID: "here", PID: os.Getpid()})
	_, err = gone.Wait()
	require.NoError(t, err)
	a.cycle("watchdog")
	assert.Equal(t, "gone", dbtest.Ask[string](db, `SELECT session_id FROM hooks.agents WHERE ended_at IS NOT NULL`))
}

func TestAnErrorWithOneAgentDoesNotKeepTheOthersFromTheirTurn(t *testing.T) {
	t.Parallel()
	db, a, _ := pair(t, Config{Transcripts: fstest.MapFS{"x.txt": {Mode: fs.ModeDir}}})
	tally, err := a.contextPoller().cycle(t.Context())
	require.ErrorContains(t, err, "agent 1")
	assert.Equal(t, 1, tally.done)
	assert.Equal(t, "y", dbtest.Ask[string](db, `SELECT session_id FROM hooks.agents WHERE context_checked_at IS NOT NULL`))
	assert.Zero(t, a.locker.Stats().Held)
}

// turn starts replicas with a model, and makes a turn with number 1.
func turn(t *testing.T, model func(context.Context, string) (string, error)) (db *dbtest.Database, a, b *replica) {
	t.Helper()
	db, a, b = pair(t, Config{Model: model})
	a.call("user-prompt-submit", Hook{SessionID: "x", Prompt: "a long text"})
	return db, a, b
}

func TestScenario_ConcurrentSummarisationAttempts(t *testing.T) {
	t.Parallel()
	called, proceed := make(chan struct{}), make(chan struct{})
	_, a, b := turn(t, func(_ context.Context, text string) (string, error) {
		close(called) // panics when called twice
		<-proceed
		return "summary of " + text, nil
	})
	first := make(chan string, 1)
	go func() {
		summary, ok, err := a.summariseTurn(t.Context(), 1)
		assert.True(t, ok)
		assert.NoError(t, err)
		first <- summary
	}()
	<-called
	summary, ok, err := b.summariseTurn(t.Context(), 1)
	close(proceed)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Empty(t, summary)
	assert.Equal(t, "summary of a long text", <-first)
}

func TestScenario_TurnAlreadySummarised(t *testing.T) {
	t.Parallel()
	db, a, _ := turn(t, func(context.Context, string) (string, error) { return "", errors.New("the model was called") })
	db.Exec(`UPDATE hooks.turns SET summary = 'there before'`)
	summary, ok, err := a.summariseTurn(t.Context(), 1)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, "there before", summary)
}

func TestAFailedModelCallLeavesTheTurnAsItWas(t *testing.T) {
	t.Parallel()
	broken := errors.New("out of words")
	db, a, _ := turn(t, func(context.Context, string) (string, error) { return "half", broken })
	summary, ok, err := a.summariseTurn(t.Context(), 1)
	require.ErrorIs(t, err, broken)
	assert.False(t, ok)
	assert.Empty(t, summary)
	assert.True(t, dbtest.Ask[bool](db, `SELECT summary IS NULL FROM hooks.turns WHERE id = 1 FOR UPDATE NOWAIT`), "and unlocked")
}

func TestATextThatComesAgainCostsNoModelCall(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	db, a, _ := turn(t, func(context.Context, string) (string, error) {
		calls.Add(1)
		return "short", nil
	})
	a.call("user-prompt-submit", Hook{SessionID: "x", Prompt: "a long text"})
	for id := range int64(2) {
		summary, ok, err := a.summariseTurn(t.Context(), id+1)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, "short", summary)
	}
	assert.Equal(t, 2, dbtest.Ask[int](db, `SELECT count(*) FROM hooks.turns WHERE summary = 'short'`))
	assert.EqualValues(t, 1, calls.Load())
}
