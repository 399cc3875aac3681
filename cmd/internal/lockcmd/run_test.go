package lockcmd_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

func TestRunEndsWithTheCodeOfItsCommandAndLeavesNothingLocked(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := clitest.Connect(t, dsn, "judge")
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
		_, stderr, code := clitest.Run(t, clitest.At(dsn), append([]string{"run", "1:42"}, c.args...)...)
		assert.Equal(t, c.want, code, "%v: %s", c.args, stderr)
		clitest.RequireFree(t, conn)
	}
}

func TestRunTellsWhoHasTheLock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	holder := clitest.Connect(t, dsn, "nightly report")
	clitest.Execute(t, holder, "SELECT pg_advisory_lock(1, 42)")
	by := fmt.Sprintf("backend %d (nightly report)", holder.PgConn().PID())
	for flags, want := range map[string]int{"-n": 75, "-w 50ms": 75, "-w 0s": 75, "-n -E 1": 1, "-w 50ms -E 0": 0, "-n -s": 75} {
		args := append(append([]string{"run", "1:42"}, strings.Fields(flags)...), "-c", "echo ran")
		stdout, stderr, code := clitest.Run(t, clitest.At(dsn), args...)
		for strings.Contains(stderr, "its holder is unknown") || strings.Contains(stderr, "does not answer within") { // a busy machine
			stdout, stderr, code = clitest.Run(t, clitest.At(dsn), args...)
		}
		assert.Equal(t, want, code, flags)
		assert.Empty(t, stdout, flags)
		assert.Contains(t, stderr, by, flags)
		assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
	_, stderr, code := clitest.Run(t, clitest.At(dsn), "run", "-n", "--key1", "1", "--key2", "42", "--", "true")
	assert.Equal(t, 75, code, stderr)
	clitest.Execute(t, holder, "SELECT pg_advisory_unlock(1, 42)")
	clitest.Execute(t, holder, "SELECT pg_advisory_lock_shared(1, 42)")
	_, stderr, code = clitest.Run(t, clitest.At(dsn), "run", "-n", "-s", "1:42", "--", "true")
	assert.Equal(t, 0, code, stderr)
	_, stderr, code = clitest.Run(t, clitest.At(dsn), "run", "-n", "1:42", "--", "true")
	assert.Equal(t, 75, code, stderr)
}

// The control is --connect-timeout, which would let it wait for an hour.
func TestRunGivesUpAServerThatNeverAnswersWhenTheWaitIsOver(t *testing.T) {
	t.Parallel()
	dsn := "postgres://u@" + clitest.SilentHost(t) + "/d?sslmode=disable"
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), "run", "--connect-timeout", "1h", "-w", "100ms", "1:42", "-c", "echo ran")
	assert.Equal(t, 69, code, "nobody knows whether it is held: %s", stderr)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "PostgreSQL does not answer within --wait 100ms; check DATABASE_URL, and that PostgreSQL is up\n")
}

func TestAPlainNameIsOneLockInEveryCommandAndInGo(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), "run", "nightly-report", "-c", "echo $PGLATCH_KEY")
	assert.Zero(t, code, stderr)
	assert.Equal(t, "name/nightly-report\n", stdout)

	locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn})
	require.NoError(t, err)
	defer locker.Close()
	key, err := namespace.Must(32767, "name").Text("nightly-report")
	require.NoError(t, err)
	require.NoError(t, locker.Do(t.Context(), key, func(context.Context) error {
		for args, want := range map[string]int{
			"run -n nightly-report -- true":                          75,
			"run -n --namespace agent=1 name/nightly-report -- true": 75,
			"run -n nightly -- true":                                 0,
			"status nightly-report":                                  0,
			"status nightly":                                         3,
		} {
			_, stderr, code := clitest.Run(t, clitest.At(dsn), strings.Fields(args)...)
			assert.Equal(t, want, code, "%s: %s", args, stderr)
		}
		stdout, _, _ := clitest.Run(t, clitest.At(dsn), "ls", "name/")
		assert.Contains(t, stdout, "name") // the namespace; the entity if the process answers in time
		return nil
	}))
}

func TestRunWaitsForTheLock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	holder, judge := clitest.Connect(t, dsn, "holder"), clitest.Connect(t, dsn, "judge")
	clitest.Execute(t, holder, "SELECT pg_advisory_lock(1, 42)")
	p := clitest.Start(t, clitest.At(dsn), "run", "1:42", "--", "echo", "ran")
	clitest.RequireWaiting(t, judge)
	p.Saying(&p.Stderr, `msg="waiting for the lock" key=1:42 held_by="backend `)
	p.Saying(&p.Stderr, "(holder), exclusive")
	assert.Empty(t, p.Stdout.String())
	clitest.Execute(t, holder, "SELECT pg_advisory_unlock(1, 42)")
	assert.Zero(t, p.Wait())
	assert.Equal(t, "ran\n", p.Stdout.String())
}

func TestASignalEndsTheWaitForTheLock(t *testing.T) {
	t.Parallel()
	clitest.HeedInterrupts(t)
	dsn := pgtest.DSN(t)
	holder, judge := clitest.Connect(t, dsn, "holder"), clitest.Connect(t, dsn, "judge")
	clitest.Execute(t, holder, "SELECT pg_advisory_lock(1, 42)")
	for s, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		p := clitest.Start(t, clitest.At(dsn), "run", "1:42", "--", "echo", "ran")
		clitest.RequireWaiting(t, judge)
		p.Signal(s)
		assert.Equal(t, want, p.Wait(), p.Stderr.String())
		assert.Empty(t, p.Stdout.String())
	}
	clitest.Execute(t, holder, "SELECT pg_advisory_unlock(1, 42)")
	clitest.RequireFree(t, judge)
}

func TestRunWithoutADatabaseEndsWith69(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := clitest.Run(t, clitest.At(clitest.Nowhere), "run", "1:42", "--", "echo", "ran")
	assert.Equal(t, 69, code, stderr)
	assert.Empty(t, stdout)
	assert.NotContains(t, stderr, "s3cret")
}

func TestTheCommandSeesItsLock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p := clitest.Start(t, clitest.At(dsn, "PGLATCH_NAMESPACES=agent=1"), "run", "agent/42", "-c", `env | grep ^PGLATCH_; exec sleep 1000`)
	conn := clitest.Connect(t, dsn, "judge")
	pid := p.Number("PGLATCH_BACKEND_PID")
	assert.Equal(t, []int{pid}, clitest.Holders(t, conn))
	for _, line := range []string{"PGLATCH_LOCK_HELD=true", "PGLATCH_KEY=agent/42", "PGLATCH_KEY1=1", "PGLATCH_KEY2=42"} {
		p.Saying(&p.Stdout, line+"\n")
	}
	p.Signal(syscall.SIGTERM)
	assert.Equal(t, 143, p.Wait())
	clitest.RequireFree(t, conn)

	outer := []string{"PGLATCH_KEY1=7", "PGLATCH_KEY2=7", "PGLATCH_KEY=7:7", "PGLATCH_FENCING_TOKEN=7"}
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn, outer...), "run", "@12345", "-c", "env | grep ^PGLATCH_ | grep -v _PID | sort")
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

	p := clitest.Start(t, clitest.At(dsn), "run", "--namespace", "agent=1", "agent/42", "-c", `echo pid=$$; exec sleep 1000`)
	p.Number("pid")
	ran, err := locker.DoOrSkip(t.Context(), agents.ID(42), none)
	require.NoError(t, err)
	assert.False(t, ran)
	p.Signal(syscall.SIGTERM)
	assert.Equal(t, 143, p.Wait())
	require.NoError(t, locker.Do(t.Context(), agents.ID(42), func(context.Context) error {
		_, stderr, code := clitest.Run(t, clitest.At(dsn), "run", "-n", "--namespace", "agent=1", "agent/42", "--", "true")
		assert.Equal(t, 75, code, stderr)
		return nil
	}))
}

func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p := clitest.Start(t, clitest.At(dsn), "run", "1:42", "-c", `trap 'echo got usr1' USR1; trap 'echo got term; exit 5' TERM; echo ready; while :; do sleep 0.05; done`)
	p.Saying(&p.Stdout, "ready")
	p.Signal(syscall.SIGUSR1)
	p.Saying(&p.Stdout, "got usr1")
	p.Signal(syscall.SIGTERM)
	assert.Equal(t, 5, p.Wait(), "a command that ends well after a signal ended well")
	assert.Contains(t, p.Stdout.String(), "got term")
	clitest.RequireFree(t, clitest.Connect(t, dsn, "judge"))
}

func TestASecondInterruptKillsTheCommand(t *testing.T) {
	t.Parallel()
	clitest.HeedInterrupts(t)
	dsn := pgtest.DSN(t)
	p := clitest.Start(t, clitest.At(dsn), "run", "1:42", "-c", `trap 'echo got int' INT; echo ready; while :; do sleep 0.05; done`)
	p.Saying(&p.Stdout, "ready")
	p.Signal(syscall.SIGINT)
	p.Saying(&p.Stdout, "got int")
	p.Signal(syscall.SIGINT)
	assert.Equal(t, 137, p.Wait())
	clitest.RequireFree(t, clitest.Connect(t, dsn, "judge"))
}

func TestTheCommandEndsWithItsWholeGroupWhenTheLockIsLost(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := clitest.Connect(t, dsn, "judge")
	p := clitest.Start(t, clitest.At(dsn), "run", "--kill-after", "300ms", "1:42", "-c", `
		sleep 1000 & echo gentle=$!
		sh -c 'trap "" TERM; echo stubborn=$$; while :; do sleep 0.1; done' &
		echo backend=$PGLATCH_BACKEND_PID; wait`)
	gentle, stubborn := p.Number("gentle"), p.Number("stubborn")
	clitest.Terminate(t, conn, p.Number("backend"))
	assert.Equal(t, 76, p.Wait())
	assert.Contains(t, p.Stderr.String(), "pglatch: the command was stopped: advisory: lock 1:42 lost after ")
	clitest.RequireDead(t, gentle)
	clitest.RequireDead(t, stubborn)
	clitest.RequireFree(t, conn)
}

func TestOnLostWarnLetsTheCommandGoOn(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p := clitest.Start(t, clitest.At(dsn), "run", "--on-lost", "warn", "1:42", "-c", `
		trap 'exit 9' USR1; trap 'exit 10' TERM; echo backend=$PGLATCH_BACKEND_PID; while :; do sleep 0.05; done`)
	clitest.Terminate(t, clitest.Connect(t, dsn, "judge"), p.Number("backend"))
	p.Saying(&p.Stderr, "level=WARN")
	p.Signal(syscall.SIGUSR1)
	assert.Equal(t, 9, p.Wait())
	assert.Contains(t, p.Stderr.String(), "lost")
}

func TestTheCommandDiesWithAProgramThatIsKilled(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p := clitest.Start(t, clitest.At(dsn), "run", "1:42", "-c", `echo pid=$$; exec sleep 1000`)
	pid := p.Number("pid")
	require.True(t, clitest.Lives(pid))
	p.Signal(syscall.SIGKILL)
	assert.Equal(t, 137, p.Wait())
	clitest.RequireDead(t, pid)
	clitest.RequireFree(t, clitest.Connect(t, dsn, "judge"))
}

func TestACommandThatWasSuspendedPastItsLockDoesNotGoOn(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := clitest.Connect(t, dsn, "judge")
	rounds := filepath.Join(t.TempDir(), "rounds")
	// timeout(1) makes a group whose parent, the test, can let it go on.
	p := clitest.StartCommand(t, clitest.At(dsn), "timeout", "1000", clitest.Binary, "run", "--session-ttl", "6s", "1:42", "-c",
		"echo child=$$; echo wrapper=$PPID; while :; do echo round >>"+rounds+"; sleep 0.05; done")
	wrapper, child := p.Number("wrapper"), p.Number("child")
	t.Cleanup(func() { _ = syscall.Kill(wrapper, syscall.SIGKILL) })
	clitest.Eventually(t, func() bool { return size(rounds) > 0 }, func() string { return "no round" })
	require.NoError(t, syscall.Kill(wrapper, syscall.SIGTSTP))
	clitest.RequireFree(t, conn) // the server ended the session
	before := size(rounds)
	require.NoError(t, syscall.Kill(wrapper, syscall.SIGCONT))
	assert.Equal(t, 76, p.Wait(), p.Stderr.String())
	assert.Equal(t, before, size(rounds))
	assert.False(t, clitest.Lives(child))
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
		p := clitest.StartCommand(t, clitest.At(dsn), "/bin/sh", "-c", fmt.Sprintf("echo text | %s run 1:42 %s -- cat", clitest.Binary, flags))
		assert.Zero(t, p.Wait(), p.Stderr.String())
		assert.Equal(t, want, p.Stdout.String())
	}
}

func TestMisuseOfRunEndsWith64BeforeAnythingIsLocked(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"run 1:42":                                            "give the command to run after --, or with -c",
		"run 1:42 true":                                       "after --, or with -c",
		"run 1:42 --":                                         "after --, or with -c",
		"run 1:42 -c true -- true":                            "not both",
		"run -- true":                                         "give one KEY",
		"run 1bogus -- true":                                  "invalid key",
		"run --namespace a=1 a -- true":                       "a is a namespace: give the entity too, as in a/42",
		"run --namespace a=32767 b -- true":                   "names have the namespace name=32767",
		"run --namespace name=1 b -- true":                    "names have the namespace name=32767",
		"run 1:42 --signal X -- true":                         `--signal: unknown signal "X"`,
		"run 1:42 --kill-after -1s -- true":                   "--kill-after is -1s",
		"run 1:42 --on-lost x -- true":                        `--on-lost is "x": use kill or warn`,
		"run 1:42 -n -w 1s -- true":                           "[nonblock wait]",
		"run 1:42 -w -1s -- true":                             "--wait is -1s",
		"run 1:42 -E 256 -- true":                             "--conflict-exit-code is 256",
		"run 1:42 --session-ttl 1s --session-ttl 1ms -- true": "--session-ttl is 1ms: use 500ms to 24h",
		"try":                 "give one KEY",
		"try 1:42 -E -1":      "--conflict-exit-code is -1",
		"try 1:42 --hold -1s": "--hold is -1s",
	} {
		_, stderr, code := clitest.Run(t, clitest.At(clitest.Nowhere), strings.Fields(args)...)
		assert.Equal(t, 64, code, args)
		assert.Contains(t, stderr, want, args)
	}
}

func TestRunLeavesNoJobsBehind(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	p := clitest.Start(t, clitest.At(dsn), "run", "1:42", "-c", "sleep 1000 & echo job=$!; exit 4")
	assert.Equal(t, 4, p.Wait())
	clitest.RequireDead(t, p.Number("job"))
	assert.Contains(t, p.Stderr.String(), "ending what the command left behind")
}
