package leadercmd_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// migrated returns a database with the table of terms.
func migrated(t *testing.T) string {
	t.Helper()
	dsn := pgtest.DSN(t)
	_, stderr, code := clitest.Run(t, clitest.At(dsn), "migrate")
	require.Zero(t, code, stderr)
	return dsn
}

func TestMigrateMakesTheTableAndCanBeRepeated(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	migrate := func(says string, args ...string) {
		t.Helper()
		stdout, stderr, code := clitest.Run(t, clitest.At(dsn), append([]string{"migrate"}, args...)...)
		assert.Zero(t, code, stderr)
		assert.Contains(t, stdout, says)
	}
	migrate("made the table public.pglatch_election\n")
	migrate("the table public.pglatch_election was there already, as it must be: nothing was changed\n")
	migrate(`"made": false`, "-o", "json")
	admin := clitest.Connect(t, dsn, "admin")
	clitest.Execute(t, admin, `ALTER TABLE pglatch_election DROP COLUMN written; CREATE SCHEMA ops`)
	_, stderr, code := clitest.Run(t, clitest.At(dsn), "migrate")
	assert.Equal(t, 69, code, stderr)
	assert.Contains(t, stderr, "lacks a column that this version needs")
	migrate("made the table ops.Terms\n", "--table", "ops.Terms")
	migrate("the table ops.Terms was there already", "--table", "ops.Terms")
	dsn += "&options=-c%20search_path%3Dops" // a table without a schema is in public all the same
	migrate("made the table terms\n", "--table", "terms")
	migrate("the table terms was there already", "--table", "terms")
	sql, stderr, code := clitest.Run(t, nil, "migrate", "--show-sql", "--table", "ops.terms")
	assert.Zero(t, code, stderr)
	assert.Contains(t, sql, `"ops"."terms"`)
	_, stderr, code = clitest.Run(t, nil, "migrate", "--show-sql", "--table", "a b")
	assert.Equal(t, 64, code, stderr)
}

func TestLeaderRunLogsEveryTransitionUntilInterruptedAndExitsWithZero(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	node := clitest.Start(t, clitest.At(dsn), "leader", "run", "--key1", "7", "--key2", "100", "--id", "node-a")
	node.Saying(&node.Stderr, "state.from=acquiring state.to=leader")
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), "leader", "status", "7:100", "-o", "json")
	require.Zero(t, code, stderr)
	status := clitest.Decode[map[string]any](t, stdout)
	assert.Equal(t, "node-a", status["identity"])
	assert.Equal(t, "1.1", status["term"])
	node.Signal(syscall.SIGTERM)
	require.Zero(t, node.Wait(), "a stop that was asked for is a success")
	requireTransitions(t, node.Stderr.String(), "stopped state.to=follower", "follower state.to=acquiring", "acquiring state.to=leader",
		"leader state.to=releasing", "releasing state.to=stopped")
	stdout, _, code = clitest.Run(t, clitest.At(dsn), "leader", "status", "7:100")
	assert.Equal(t, 3, code)
	assert.Contains(t, stdout, "nobody leads")
}

// requireTransitions checks that each transition is one line, and that each line has the key.
func requireTransitions(t *testing.T, log string, transitions ...string) {
	t.Helper()
	for _, transition := range transitions {
		assert.Equal(t, 1, strings.Count(log, "state.from="+transition), "%s: %s", transition, log)
	}
	for line := range strings.Lines(log) {
		assert.Contains(t, line, " election=7:100 key1=7 key2=100", "each line")
	}
}

func TestAFollowersTransitionsAreLoggedOnceWithItsKeyInDetailToo(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"-v"}} {
		dsn := migrated(t)
		first := clitest.Start(t, clitest.At(dsn), "leader", "run", "7:100")
		first.Saying(&first.Stderr, "lock_acquired")
		follower := clitest.Start(t, clitest.At(dsn), append([]string{"leader", "run", "7:100"}, flags...)...)
		follower.Saying(&follower.Stderr, "state.from=acquiring state.to=follower")
		follower.Signal(syscall.SIGTERM)
		require.Zero(t, follower.Wait())
		requireTransitions(t, follower.Stderr.String(), "stopped state.to=follower", "acquiring state.to=follower", "follower state.to=stopped")
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func TestLeaderRunMisusesExitWith64(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"leader", "run"},
		{"leader", "run", "agent/42"},
		{"leader", "run", "1:1", "--restart", "sometimes"},
		{"leader", "run", "1:1", "--lease-duration", "1ms"},
		{"leader", "run", "1:1", "--health-interval", "14s"},
		{"leader", "run", "1:1", "--health-interval", "14s", "--", "true"},
		{"leader", "run", "1:1", "--kill-after", "5s", "--", "true"},
		{"leader", "run", "1:1", "--kill-after", "-1s", "--", "true"},
		{"leader", "run", "1:1", "--lease-duration", "-1s", "--", "true"},
		{"leader", "run", "1:1", "--drain-timeout", "-1s", "--", "true"},
		{"leader", "run", "1:1", "--table", "a b"},
		{"leader", "watch", "1:1", "--interval", "0s"},
		{"leader", "bogus"},
	} {
		_, stderr, code := clitest.Run(t, clitest.At("postgres://nobody@127.0.0.1:1/none"), args...)
		assert.Equal(t, 64, code, "%v: %s", args, stderr)
		assert.Equal(t, 1, strings.Count(stderr, "\n"), "%v: %s", args, stderr)
	}
}

func TestLeaderRunPassesOnTheCommandsExitCode(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"--", "true"}, 0},
		{[]string{"-c", "exit 7"}, 7},
		{[]string{"-c", "kill -9 $$"}, 137},
		{[]string{"--", "/nonexistent/program"}, 127},
		{[]string{"--", "/etc/passwd"}, 126},
		{[]string{"--restart", "on-failure", "--restart-delay", "1ms", "-c", `n=$(cat $PGLATCH_TEST_FILE); echo $((n+1)) > $PGLATCH_TEST_FILE; [ "$n" = 3 ]`}, 0},
	} {
		counter := filepath.Join(t.TempDir(), "counter")
		require.NoError(t, os.WriteFile(counter, []byte("1"), 0o600))
		_, stderr, code := clitest.Run(t, clitest.At(dsn, "PGLATCH_TEST_FILE="+counter), append([]string{"leader", "run", "7:101"}, c.args...)...)
		assert.Equal(t, c.code, code, "%v: %s", c.args, stderr)
	}
	clitest.RequireFree(t, clitest.Connect(t, dsn, "look"))
}

func TestLeaderRunTellsTheCommandItsTerm(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), "leader", "run", "7:102", "-c", "env | grep ^PGLATCH | LC_ALL=C sort")
	require.Zero(t, code, stderr)
	assert.Equal(t, fmt.Sprintf("PGLATCH_FENCING_TOKEN=%d\nPGLATCH_KEY1=7\nPGLATCH_KEY2=102\nPGLATCH_KEY=7:102\nPGLATCH_LOCK_HELD=true\nPGLATCH_TERM=1.1\n", 1<<48+1), stdout)
}

func TestLostLeadershipKillsTheWholeGroupAndTheNextRunsTheCommandAgain(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	node := clitest.Start(t, clitest.At(dsn), "leader", "run", "7:103", "-c", clitest.Family)
	first := node.Pids(1)
	depose(t, dsn)
	clitest.RequireDead(t, first...)
	second := node.Pids(2) // re-elected
	node.Signal(syscall.SIGTERM)
	assert.Equal(t, 143, node.Wait(), "the command's own end")
	clitest.RequireDead(t, second...)
	clitest.RequireFree(t, clitest.Connect(t, dsn, "look"))
}

func TestLostLeadershipWithoutReacquireExitsWith76(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	node := clitest.Start(t, clitest.At(dsn), "leader", "run", "7:104", "--no-auto-reacquire", "-c", clitest.Family)
	first := node.Pids(1)
	depose(t, dsn)
	assert.Equal(t, 76, node.Wait(), node.Stderr.String())
	clitest.RequireDead(t, first...)
	clitest.RequireFree(t, clitest.Connect(t, dsn, "look"))
}

func TestAKilledLeaderTakesItsCommandWithItAndAnotherLeads(t *testing.T) {
	t.Parallel()
	clitest.HeedInterrupts(t)
	dsn := migrated(t)
	old := clitest.Start(t, clitest.At(dsn), "leader", "run", "7:105", "-c", "echo $$ $$; exec sleep 300")
	command := old.Pids(1)
	next := clitest.Start(t, clitest.At(dsn), "leader", "run", "7:105", "-c", "echo $$ $$; exec sleep 300")
	next.Saying(&next.Stderr, "follower")
	old.Signal(syscall.SIGKILL)
	clitest.RequireDead(t, command...)
	successor := next.Pids(1)
	next.Signal(syscall.SIGINT)
	assert.Equal(t, 130, next.Wait())
	clitest.RequireDead(t, successor...)
	clitest.RequireFree(t, clitest.Connect(t, dsn, "look"))
}

func TestAFollowerThatIsInterruptedExitsWithZero(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	old := clitest.Start(t, clitest.At(dsn), "leader", "run", "7:106", "--id", "a")
	old.Saying(&old.Stderr, "lock_acquired")
	next := clitest.Start(t, clitest.At(dsn), "leader", "run", "7:106", "--", "echo", "never")
	next.Saying(&next.Stderr, "state.to=follower")
	next.Signal(syscall.SIGTERM)
	assert.Zero(t, next.Wait(), next.Stderr.String())
	assert.Empty(t, next.Stdout.String())
}

func TestLeaderWatchPrintsChanges(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	clitest.HeedInterrupts(t)
	dsn := migrated(t)
	watch := clitest.Start(t, clitest.At(dsn), "leader", "watch", "7:107", "--interval", "50ms", "-o", "jsonl")
	watch.Saying(&watch.Stdout, `"led":false`)
	node := clitest.Start(t, clitest.At(dsn), "leader", "run", "7:107", "--id", "node-a")
	watch.Saying(&watch.Stdout, `"identity":"node-a"`)
	node.Signal(syscall.SIGTERM)
	require.Zero(t, node.Wait())
	clitest.Eventually(t, func() bool { return strings.Count(watch.Stdout.String(), `"led":false`) == 2 }, watch.Stdout.String)
	watch.Signal(syscall.SIGINT)
	assert.Zero(t, watch.Wait())
}

func TestLeaderRunServesItsState(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	node := clitest.Start(t, clitest.At(dsn), "leader", "run", "7:108", "--http", "127.0.0.1:0")
	node.Saying(&node.Stderr, "lock_acquired")
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(node.Stderr.String())[1]
	for path, want := range map[string]string{
		"/leader": `"state":"leader"`, "/readyz": "", "/livez": "",
		"/metrics": `",name="7:108"} 1`,
	} {
		var text string
		clitest.Eventually(t, func() bool { // the node says that it leads an instant after it logs it
			response, err := http.Get("http://" + address + path)
			require.NoError(t, err)
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			text = fmt.Sprintf("%s: %s\n%s", path, response.Status, body)
			return response.StatusCode == http.StatusOK && strings.Contains(string(body), want)
		}, func() string { return text })
	}
}

func TestLeaderCommandsWithoutADatabase(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"leader", "status", "1:1"}, {"leader", "watch", "1:1"}, {"migrate"}} {
		_, stderr, code := clitest.Run(t, clitest.At("postgres://nobody:hunter2@127.0.0.1:1/none"), args...)
		assert.Equal(t, 69, code, "%v: %s", args, stderr)
		assert.NotContains(t, stderr, "hunter2")
	}
}

func TestLeaderCommandsThatTheDatabaseRefusesEndWith77AndSayWhy(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(pgtest.DSN(t))
	require.NoError(t, err)
	u.Path = "/nowhere"
	for _, args := range []string{"run 1:1", "run 1:1 -- true", "status 1:1", "watch 1:1"} {
		_, stderr, code := clitest.Run(t, clitest.At(u.String()), append([]string{"leader"}, strings.Fields(args)...)...)
		assert.Equal(t, 77, code, "%s: %s", args, stderr)
		assert.True(t, strings.HasPrefix(lastLine(stderr), `pglatch: database "nowhere" does not exist (SQLSTATE 3D000`), "%s: %s", args, stderr)
	}
}

func TestLeaderRunOnAnEmptyDatabaseSaysWhatToDoAndWaits(t *testing.T) {
	t.Parallel()
	const says = `the table public.pglatch_election, which counts terms, does not exist: run "pglatch migrate", or use --create-table, or --no-terms`
	for _, command := range [][]string{nil, {"--", "sleep", "1000"}} {
		dsn := pgtest.DSN(t)
		node := clitest.Start(t, clitest.At(dsn), append([]string{"leader", "run", "7:109", "--retry-base", "50ms", "--retry-max", "50ms"}, command...)...)
		node.Saying(&node.Stderr, "to do without")
		_, stderr, code := clitest.Run(t, clitest.At(dsn), "migrate")
		require.Zero(t, code, stderr)
		node.Saying(&node.Stderr, "lock_acquired")
		log := node.Stderr.String()
		assert.Equal(t, 1, strings.Count(log, "attempt failed"), "each reason once: %s", log)
		assert.Contains(t, strings.ReplaceAll(log, `\"`, `"`), says)
		assert.NotContains(t, log, "Config.")
		assert.NotContains(t, log, "unreachable")
	}
	_, stderr, code := clitest.Run(t, clitest.At(pgtest.DSN(t)), "leader", "run", "7:109", "--no-auto-reacquire")
	assert.Equal(t, 69, code)
	assert.Contains(t, lastLine(stderr), says)
	created := clitest.Start(t, clitest.At(pgtest.DSN(t)), "leader", "run", "7:109", "--create-table")
	created.Saying(&created.Stderr, "lock_acquired")
}

func TestANodeThatIsToEndDoesSoAlsoIfLeadershipIsLostMeanwhile(t *testing.T) {
	t.Parallel()
	dsn, turn := migrated(t), filepath.Join(t.TempDir(), "turn")
	ending := clitest.Start(t, clitest.At(dsn), "leader", "run", "7:110", "--lease-duration", "5m", "--kill-after", "1m", "-c",
		"trap 'echo term; until test -e "+turn+"; do sleep 0.05; done; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
	ending.Saying(&ending.Stdout, "ready")
	next := clitest.Start(t, clitest.At(dsn), "leader", "run", "7:110", "-c", "echo leads; exec sleep 1000")
	next.Saying(&next.Stderr, "follower")
	ending.Signal(syscall.SIGTERM)
	ending.Saying(&ending.Stdout, "term")
	depose(t, dsn)
	next.Saying(&next.Stdout, "leads")
	require.NoError(t, os.WriteFile(turn, nil, 0o600))
	assert.Zero(t, ending.Wait(), ending.Stderr.String())
}

func TestACommandThatEndedIsNotRunAgainIfLeadershipIsLostMeanwhile(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := migrated(t)
	node := clitest.Start(t, clitest.At(dsn), "leader", "run", "7:111", "--lease-duration", "1m", "--kill-after", "10s", "-c",
		"(trap '' TERM; while :; do sleep 0.05; done) & echo ran; exit 3")
	node.Saying(&node.Stderr, "left behind")
	depose(t, dsn) // while what the command left behind ends
	assert.Equal(t, 3, node.Wait(), node.Stderr.String())
	assert.Equal(t, "ran\n", node.Stdout.String())
}

// stubborn is a command that TERM does not end, and USR1 does.
const stubborn = `trap '' TERM; trap 'echo asked; exit 9' USR1; echo ready; while :; do sleep 0.05; done`

func TestACommandThatGoesOnAfterTermIsAskedAndKilled(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	for _, c := range []struct {
		name  string
		flags []string
		code  int
		says  string
	}{
		{"killed", []string{"--drain-timeout", "100ms", "--kill-after", "100ms"}, 137, "ready\n"},
		{"killed at once", []string{"--drain-timeout", "0s", "--kill-after", "0s"}, 137, "ready\n"},
		{"asked with its own signal", []string{"--drain-timeout", "100ms", "--lease-duration", "10m", "--kill-after", "1m", "--signal", "USR1"}, 9, "ready\nasked\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			node := clitest.Start(t, clitest.At(migrated(t)), append([]string{"leader", "run", "7:112", "-c", stubborn}, c.flags...)...)
			node.Saying(&node.Stdout, "ready")
			node.Signal(syscall.SIGTERM)
			assert.Equal(t, c.code, node.Wait(), node.Stderr.String())
			assert.Equal(t, c.says, node.Stdout.String())
		})
	}
}

func TestANodeLeadsUntilItsCommandHasEndedAfterTerm(t *testing.T) {
	t.Parallel()
	dsn, turn := migrated(t), filepath.Join(t.TempDir(), "turn")
	ending := clitest.Start(t, clitest.At(dsn), "leader", "run", "7:113", "-c",
		"trap 'echo term' TERM; echo ready; until test -e "+turn+"; do sleep 0.05; done; exit 4")
	ending.Saying(&ending.Stdout, "ready")
	next := clitest.Start(t, clitest.At(dsn), "leader", "run", "7:113", "-c", "echo leads; exec sleep 1000")
	clitest.RequireWaiting(t, clitest.Connect(t, dsn, "look"))
	ending.Signal(syscall.SIGTERM)
	ending.Saying(&ending.Stdout, "term")
	assert.Empty(t, next.Stdout.String())
	require.NoError(t, os.WriteFile(turn, nil, 0o600))
	assert.Equal(t, 4, ending.Wait(), "its own end, in the time that it has")
	next.Saying(&next.Stdout, "leads")
}

// depose ends the session of the leader, the only one with advisory locks.
func depose(t *testing.T, dsn string) {
	t.Helper()
	conn := clitest.Connect(t, dsn, "deposer")
	clitest.Terminate(t, conn, clitest.Holders(t, conn)[0])
}
