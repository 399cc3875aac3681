package agents_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func cycle(t *testing.T, w *agents.Worker) agents.Tally {
	t.Helper()
	tally, err := w.Cycle(t.Context())
	require.NoError(t, err)
	return tally
}

func TestScenario_BackgroundThreadEncountersLockedAgent(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b := start(t, agents.Config{DSN: dsn}), start(t, agents.Config{DSN: dsn, AgentTimeout: time.Minute})
	x := a.call("session-start", agents.Hook{SessionID: "x"})
	a.call("session-start", agents.Hook{SessionID: "y"})
	a.exec(`UPDATE hooks.agents SET last_seen_at = now() - interval '1 hour'`)

	release := a.stall(x.AgentID)
	hook := a.send("pre-tool-use", agents.Hook{SessionID: "x"})
	eventually(t, func() bool { return a.Locker().Stats().Held == 1 }, "the hook has the lock")
	for _, name := range []string{"transcript_reconciler", "context_poller", "watchdog", "reaper"} { // the reaper ends y
		assert.Equal(t, agents.Tally{Done: 1, Skipped: 1}, cycle(t, b.Worker(name)), name)
	}
	pending(t, hook)
	release()
	done(t, hook)
	assert.Equal(t, agents.Tally{Done: 1}, cycle(t, b.Worker("context_poller")), "the next cycle has its turn")
	assert.Equal(t, agents.Tally{}, cycle(t, b.Worker("reaper")), "the hook was a sign of life")
	assert.Equal(t, "x", ask[string](a, `SELECT session_id FROM hooks.agents WHERE ended_at IS NULL`))
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

func commits(t *testing.T, a *replica) []commit {
	t.Helper()
	rows, _ := a.WorkPool().Query(t.Context(), `DELETE FROM hooks.commits RETURNING agent_id, locks, own`)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[commit])
	require.NoError(t, err)
	return all
}

func TestScenario_ReaperCommitInsideLock(t *testing.T) {
	t.Parallel()
	a := start(t, agents.Config{DSN: pgtest.DSN(t)})
	a.exec(`INSERT INTO hooks.agents (session_id, last_seen_at) SELECT 's' || i, now() - interval '1 hour' FROM generate_series(1, 3) i`)
	a.exec(noteCommits)

	assert.Equal(t, agents.Tally{Done: 3}, cycle(t, a.Worker("reaper")))
	assert.Equal(t, []commit{{1, 1, true}, {2, 1, true}, {3, 1, true}}, commits(t, a),
		"each agent is committed on its own, under its own lock and no other")
	assert.Equal(t, 1, a.Locker().Stats().Sessions, "the lock connection is back in the pool before the next agent")
	assert.Zero(t, a.Locker().Stats().SessionsInUse)
	assert.Zero(t, ask[int](a, `SELECT count(*) FROM hooks.agents WHERE ended_at IS NULL`))

	a.exec(`UPDATE hooks.agents SET pid = 0 WHERE id = 1`)
	assert.Equal(t, []commit{{1, 0, false}}, commits(t, a), "control: a commit without a lock is seen")
}

func TestTheReaperCompletesTheCommandOfASilentAgent(t *testing.T) {
	t.Parallel()
	a := start(t, agents.Config{DSN: pgtest.DSN(t), AgentTimeout: time.Minute})
	a.call("session-start", agents.Hook{SessionID: "s"})
	x := a.call("user-prompt-submit", agents.Hook{SessionID: "s"})
	assert.Equal(t, agents.Tally{}, cycle(t, a.Worker("reaper")))
	a.exec(`UPDATE hooks.agents SET last_seen_at = now() - interval '61 s'`)
	assert.Equal(t, agents.Tally{Done: 1}, cycle(t, a.Worker("reaper")))
	assert.Equal(t, agents.Complete, ask[string](a, `SELECT state FROM hooks.commands WHERE id = $1`, x.CommandID))
}

func TestTheReconcilerAndThePollerReadTheTranscript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := start(t, agents.Config{DSN: pgtest.DSN(t), TranscriptDir: dir})
	a.call("session-start", agents.Hook{SessionID: "s"})
	a.call("user-prompt-submit", agents.Hook{SessionID: "s", Prompt: "question"})
	long := make([]byte, 80_000)
	for i := range long {
		long[i] = 'x'
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "s.txt"), append(long, "\nsecond\nhalf a li"...), 0o600))
	for range 2 { // the second cycle finds nothing new
		cycle(t, a.Worker("transcript_reconciler"))
		cycle(t, a.Worker("context_poller"))
		assert.Equal(t, 3, ask[int](a, `SELECT count(*) FROM hooks.turns`))
	}
	assert.Equal(t, "second", ask[string](a, `SELECT text FROM hooks.turns ORDER BY id DESC LIMIT 1`))
	assert.Equal(t, 10, ask[int](a, `SELECT context_percent FROM hooks.agents`))
}

func TestTheWatchdogEndsAnAgentWhoseProcessIsGone(t *testing.T) {
	t.Parallel()
	a := start(t, agents.Config{DSN: pgtest.DSN(t)})
	gone, err := os.StartProcess("/bin/true", nil, &os.ProcAttr{})
	require.NoError(t, err)
	a.call("session-start", agents.Hook{SessionID: "gone", PID: gone.Pid})
	a.call("session-start", agents.Hook{SessionID: "here", PID: os.Getpid()})
	a.call("session-start", agents.Hook{SessionID: "unknown"})
	_, err = gone.Wait()
	require.NoError(t, err)
	cycle(t, a.Worker("watchdog"))
	assert.Equal(t, "gone", ask[string](a, `SELECT session_id FROM hooks.agents WHERE ended_at IS NOT NULL`))
}

func TestAnErrorWithOneAgentDoesNotKeepTheOthersFromTheirTurn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := start(t, agents.Config{DSN: pgtest.DSN(t), TranscriptDir: dir})
	a.call("session-start", agents.Hook{SessionID: "bad"})
	a.call("session-start", agents.Hook{SessionID: "good"})
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bad.txt"), 0o700))
	tally, err := a.Worker("context_poller").Cycle(t.Context())
	require.ErrorContains(t, err, "agent 1")
	assert.Equal(t, agents.Tally{Done: 1}, tally)
	assert.Equal(t, "good", ask[string](a, `SELECT session_id FROM hooks.agents WHERE context_checked_at IS NOT NULL`))
	assert.Zero(t, a.Locker().Stats().Held)
}

func TestTurnsThatTheReconcilerWroteAreSummarised(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := start(t, agents.Config{DSN: pgtest.DSN(t), TranscriptDir: dir})
	a.call("session-start", agents.Hook{SessionID: "s"})
	a.call("user-prompt-submit", agents.Hook{SessionID: "s", Prompt: "question"})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "s.txt"), []byte("first\nsecond\n"), 0o600))
	cycle(t, a.Worker("transcript_reconciler"))
	eventually(t, func() bool {
		return ask[int](a, `SELECT count(*) FROM hooks.turns WHERE summary = text`) == 2
	}, "both are summarised")
}
