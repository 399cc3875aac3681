package cli_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

// holders are the sessions of the database that hold advisory locks.
func holders(t *testing.T, conn *pgx.Conn) []int {
	t.Helper()
	rows, err := conn.Query(context.Background(), `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	require.NoError(t, err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(t, err)
	return pids
}

// requireFree waits until nothing is locked. A session that was killed takes a moment to end.
func requireFree(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	eventually(t, func() bool { return len(holders(t, conn)) == 0 }, func() string { return "something stays locked" })
}

// requireWaiting waits until a session stands in the queue for a lock.
func requireWaiting(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	eventually(t, func() bool {
		var waits bool
		err := conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&waits)
		return err == nil && waits
	}, func() string { return "nobody waits" })
}

// lives reports whether a process is more than a zombie.
func lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, fields, _ := strings.Cut(string(stat), ") ")
	return err == nil && fields[0] != 'Z'
}

func requireDead(t *testing.T, pids ...int) {
	t.Helper()
	eventually(t, func() bool { return !slices.ContainsFunc(pids, lives) }, func() string { return fmt.Sprintf("of processes %v one lives", pids) })
}

// number waits for the program to print a line "name=number" and returns the number.
func (p *program) number(name string) int {
	p.t.Helper()
	n := -1
	eventually(p.t, func() bool {
		for line := range strings.Lines(p.stdout.String()) {
			value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"=")
			if number, err := strconv.Atoi(value); ok && err == nil && strings.HasSuffix(line, "\n") {
				n = number
			}
		}
		return n >= 0
	}, func() string { return name + "\n" + p.stdout.String() + p.stderr.String() })
	return n
}

// heedInterrupts makes programs heed SIGINT although the test was started to ignore
// it, as a shell does with what it runs in the background.
func heedInterrupts(t *testing.T) {
	t.Helper()
	c := make(chan os.Signal, 1)
	if signal.Ignored(syscall.SIGINT) {
		signal.Notify(c, syscall.SIGINT)
	}
}

// terminate ends a session of PostgreSQL.
func terminate(t *testing.T, conn *pgx.Conn, pid int) {
	t.Helper()
	var done bool
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_terminate_backend($1)", pid).Scan(&done))
	require.True(t, done)
}

func TestRunEndsWithTheCodeOfItsCommandAndLeavesNothingLocked(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := connect(t, dsn, "judge")
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("text"), 0o644))
	for _, c := range []struct {
		want int
		args []string
	}{
		{0, []string{"--", "true"}},
		{3, []string{"--", "sh", "-c", "exit 3"}},
		{77, []string{"-c", "exit 77"}},
		{143, []string{"-c", "kill -TERM $$"}},
		{137, []string{"-c", "kill -KILL $$"}},
		{126, []string{"--", plain}},
		{127, []string{"--", "pglatch-no-such-program"}},
		{127, []string{"-c", "pglatch-no-such-program"}},
	} {
		_, stderr, code := run(t, at(dsn), append([]string{"run", "1:42"}, c.args...)...)
		assert.Equal(t, c.want, code, "%v: %s", c.args, stderr)
		requireFree(t, conn)
	}
}

func TestRunTellsWhoHasTheLock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	holder := connect(t, dsn, "nightly report")
	execute(t, holder, "SELECT pg_advisory_lock(1, 42)")
	by := fmt.Sprintf("backend %d (nightly report)", holder.PgConn().PID())
	for flags, want := range map[string]int{"-n": 75, "-w 50ms": 75, "-w 0s": 75, "-n -E 1": 1, "-w 50ms -E 0": 0, "-n -s": 75} {
		args := append(append([]string{"run", "1:42"}, strings.Fields(flags)...), "-c", "echo ran")
		stdout, stderr, code := run(t, at(dsn), args...)
		assert.Equal(t, want, code, flags)
		assert.Empty(t, stdout, flags)
		assert.Contains(t, stderr, by, flags)
		assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
	_, stderr, code := run(t, at(dsn), "run", "-n", "--key1", "1", "--key2", "42", "--", "true")
	assert.Equal(t, 75, code, stderr)
	execute(t, holder, "SELECT pg_advisory_unlock(1, 42)")
	execute(t, holder, "SELECT pg_advisory_lock_shared(1, 42)")
	_, stderr, code = run(t, at(dsn), "run", "-n", "-s", "1:42", "--", "true")
	assert.Equal(t, 0, code, stderr)
	_, stderr, code = run(t, at(dsn), "run", "-n", "1:42", "--", "true")
	assert.Equal(t, 75, code, stderr)
}

func TestRunWaitsForTheLock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	holder, judge := connect(t, dsn, "holder"), connect(t, dsn, "judge")
	execute(t, holder, "SELECT pg_advisory_lock(1, 42)")
	p := start(t, at(dsn), "run", "1:42", "--", "echo", "ran")
	requireWaiting(t, judge)
	p.saying(&p.stderr, `msg="waiting for the lock" key=1:42 held_by="backend `)
	p.saying(&p.stderr, "(holder), exclusive")
	assert.Empty(t, p.stdout.String())
	execute(t, holder, "SELECT pg_advisory_unlock(1, 42)")
	assert.Zero(t, p.wait())
	assert.Equal(t, "ran\n", p.stdout.String())
}

func TestASignalEndsTheWaitForTheLock(t *testing.T) {
	t.Parallel()
	heedInterrupts(t)
	dsn := pgtest.DSN(t)
	holder, judge := connect(t, dsn, "holder"), connect(t, dsn, "judge")
	execute(t, holder, "SELECT pg_advisory_lock(1, 42)")
	for s, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		p := start(t, at(dsn), "run", "1:42", "--", "echo", "ran")
		requireWaiting(t, judge)
		p.signal(s)
		assert.Equal(t, want, p.wait(), p.stderr.String())
		assert.Empty(t, p.stdout.String())
	}
	execute(t, holder, "SELECT pg_advisory_unlock(1, 42)")
	requireFree(t, judge)
}

func TestRunWithoutADatabaseEndsWith69(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := run(t, at(nowhere), "run", "1:42", "--", "echo", "ran")
	assert.Equal(t, 69, code, stderr)
	assert.Empty(t, stdout)
	assert.NotContains(t, stderr, "s3cret")
}

func TestTheCommandSeesItsLock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p := start(t, at(dsn, "PGLATCH_NAMESPACES=agent=1"), "run", "agent/42", "-c", `env | grep ^PGLATCH_; exec sleep 1000`)
	conn := connect(t, dsn, "judge")
	pid := p.number("PGLATCH_BACKEND_PID")
	assert.Equal(t, []int{pid}, holders(t, conn))
	for _, line := range []string{"PGLATCH_LOCK_HELD=true", "PGLATCH_KEY=agent/42", "PGLATCH_KEY1=1", "PGLATCH_KEY2=42"} {
		p.saying(&p.stdout, line+"\n")
	}
	p.signal(syscall.SIGTERM)
	assert.Equal(t, 143, p.wait())
	requireFree(t, conn)

	outer := []string{"PGLATCH_KEY1=7", "PGLATCH_KEY2=7", "PGLATCH_KEY=7:7", "PGLATCH_FENCING_TOKEN=7"}
	stdout, stderr, code := run(t, at(dsn, outer...), "run", "@12345", "-c", "env | grep ^PGLATCH_ | grep -v _PID | sort")
	assert.Zero(t, code, stderr)
	assert.Equal(t, "PGLATCH_KEY=@12345\nPGLATCH_LOCK_HELD=true\n", stdout, "nothing of an outer lock")
}

func TestACommandAndAProgramOnOneEntityExcludeEachOther(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	agents := namespace.Must(1, "agent")
	locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	none := func(context.Context) error { return nil }

	p := start(t, at(dsn), "run", "--namespace", "agent=1", "agent/42", "-c", `echo pid=$$; exec sleep 1000`)
	p.number("pid")
	ran, err := locker.DoOrSkip(t.Context(), agents.ID(42), none)
	require.NoError(t, err)
	assert.False(t, ran)
	p.signal(syscall.SIGTERM)
	assert.Equal(t, 143, p.wait())
	require.NoError(t, locker.Do(t.Context(), agents.ID(42), func(context.Context) error {
		_, stderr, code := run(t, at(dsn), "run", "-n", "--namespace", "agent=1", "agent/42", "--", "true")
		assert.Equal(t, 75, code, stderr)
		return nil
	}))
}

func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p := start(t, at(dsn), "run", "1:42", "-c", `trap 'echo got usr1' USR1; trap 'echo got term; exit 5' TERM; echo ready; while :; do sleep 0.05; done`)
	p.saying(&p.stdout, "ready")
	p.signal(syscall.SIGUSR1)
	p.saying(&p.stdout, "got usr1")
	p.signal(syscall.SIGTERM)
	assert.Equal(t, 5, p.wait(), "a command that ends well after a signal ended well")
	assert.Contains(t, p.stdout.String(), "got term")
	requireFree(t, connect(t, dsn, "judge"))
}

func TestASecondInterruptKillsTheCommand(t *testing.T) {
	t.Parallel()
	heedInterrupts(t)
	dsn := pgtest.DSN(t)
	p := start(t, at(dsn), "run", "1:42", "-c", `trap 'echo got int' INT; echo ready; while :; do sleep 0.05; done`)
	p.saying(&p.stdout, "ready")
	p.signal(syscall.SIGINT)
	p.saying(&p.stdout, "got int")
	p.signal(syscall.SIGINT)
	assert.Equal(t, 137, p.wait())
	requireFree(t, connect(t, dsn, "judge"))
}

func TestTheCommandEndsWithItsWholeGroupWhenTheLockIsLost(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := connect(t, dsn, "judge")
	p := start(t, at(dsn), "run", "--kill-after", "300ms", "1:42", "-c", `
		sleep 1000 & echo gentle=$!
		sh -c 'trap "" TERM; echo stubborn=$$; while :; do sleep 0.1; done' &
		echo backend=$PGLATCH_BACKEND_PID; wait`)
	gentle, stubborn := p.number("gentle"), p.number("stubborn")
	terminate(t, conn, p.number("backend"))
	assert.Equal(t, 76, p.wait())
	assert.Contains(t, p.stderr.String(), "pglatch: the command was stopped: advisory: lock 1:42 lost after ")
	requireDead(t, gentle)
	requireDead(t, stubborn)
	requireFree(t, conn)
}

func TestOnLostWarnLetsTheCommandGoOn(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p := start(t, at(dsn), "run", "--on-lost", "warn", "1:42", "-c", `
		trap 'exit 9' USR1; trap 'exit 10' TERM; echo backend=$PGLATCH_BACKEND_PID; while :; do sleep 0.05; done`)
	terminate(t, connect(t, dsn, "judge"), p.number("backend"))
	p.saying(&p.stderr, "level=WARN")
	p.signal(syscall.SIGUSR1)
	assert.Equal(t, 9, p.wait())
	assert.Contains(t, p.stderr.String(), "lost")
}

func TestTheCommandDiesWithAProgramThatIsKilled(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p := start(t, at(dsn), "run", "1:42", "-c", `echo pid=$$; exec sleep 1000`)
	pid := p.number("pid")
	require.True(t, lives(pid))
	p.signal(syscall.SIGKILL)
	assert.Equal(t, 137, p.wait())
	requireDead(t, pid)
	requireFree(t, connect(t, dsn, "judge"))
}

func TestACommandThatWasSuspendedPastItsLockDoesNotGoOn(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := connect(t, dsn, "judge")
	rounds := filepath.Join(t.TempDir(), "rounds")
	// timeout(1) makes a group whose parent, the test, can let it go on.
	p := startCommand(t, at(dsn), "timeout", "1000", binary, "run", "--session-ttl", "3s", "1:42", "-c",
		"echo child=$$; echo wrapper=$PPID; while :; do echo round >>"+rounds+"; sleep 0.05; done")
	wrapper, child := p.number("wrapper"), p.number("child")
	t.Cleanup(func() { _ = syscall.Kill(wrapper, syscall.SIGKILL) })
	eventually(t, func() bool { return size(rounds) > 0 }, func() string { return "no round" })
	require.NoError(t, syscall.Kill(wrapper, syscall.SIGTSTP))
	requireFree(t, conn) // the server ended the session
	before := size(rounds)
	require.NoError(t, syscall.Kill(wrapper, syscall.SIGCONT))
	assert.Equal(t, 76, p.wait(), p.stderr.String())
	assert.Equal(t, before, size(rounds))
	assert.False(t, lives(child))
}

// size is that of a file, 0 if there is none.
func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

func TestTheCommandCanHaveAnEmptyStandardInput(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for flags, want := range map[string]string{"": "text\n", "--close-stdin": ""} {
		p := startCommand(t, at(dsn), "/bin/sh", "-c", fmt.Sprintf("echo text | %s run 1:42 %s -- cat", binary, flags))
		assert.Zero(t, p.wait(), p.stderr.String())
		assert.Equal(t, want, p.stdout.String())
	}
}

func TestMisuseOfRunEndsWith64BeforeAnythingIsLocked(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"run 1:42":                          "give the command to run after --, or with -c",
		"run 1:42 true":                     "after --, or with -c",
		"run 1:42 --":                       "after --, or with -c",
		"run 1:42 -c true -- true":          "not both",
		"run -- true":                       "give one KEY",
		"run bogus -- true":                 "invalid key",
		"run 1:42 --signal X -- true":       `--signal: unknown signal "X"`,
		"run 1:42 --kill-after -1s -- true": "--kill-after is -1s",
		"run 1:42 --on-lost x -- true":      `--on-lost is "x": use kill or warn`,
		"run 1:42 -n -w 1s -- true":         "[nonblock wait]",
		"run 1:42 -w -1s -- true":           "--wait is -1s",
		"run 1:42 -E 256 -- true":           "--conflict-exit-code is 256",
		"run 1:42 --session-ttl 1s --session-ttl 1ms -- true": "--session-ttl is 1ms: use 500ms to 24h",
		"try":                 "give one KEY",
		"try 1:42 -E -1":      "--conflict-exit-code is -1",
		"try 1:42 --hold -1s": "--hold is -1s",
	} {
		_, stderr, code := run(t, at(nowhere), strings.Fields(args)...)
		assert.Equal(t, 64, code, args)
		assert.Contains(t, stderr, want, args)
	}
}

func TestRunLeavesNoJobsBehind(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	p := start(t, at(dsn), "run", "1:42", "-c", "sleep 1000 & echo job=$!; exit 4")
	assert.Equal(t, 4, p.wait())
	requireDead(t, p.number("job"))
	assert.Contains(t, p.stderr.String(), "ending what the command left behind")
}
