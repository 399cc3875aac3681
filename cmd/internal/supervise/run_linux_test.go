package supervise_test

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/supervise"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/gobuild"
)

func TestAChildThatDoesNotStartHasTheCodesOfTheShell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain, noInterpreter := filepath.Join(dir, "plain"), filepath.Join(dir, "script")
	require.NoError(t, os.WriteFile(plain, []byte("text"), 0o644))
	require.NoError(t, gobuild.WriteExecutable(noInterpreter, []byte("#!"+dir+"/nothing\n")))
	for program, want := range map[string]int{
		"pglatch-no-such-program": supervise.ExitNotFound,
		dir + "/nothing":          supervise.ExitNotFound,
		noInterpreter:             supervise.ExitNotFound,
		"":                        supervise.ExitNotFound,
		plain:                     supervise.ExitNotExecutable,
		dir:                       supervise.ExitNotExecutable,
	} {
		_, err := supervise.Run(t.Context(), supervise.Command{Args: []string{program}})
		var start *supervise.StartError
		require.ErrorAs(t, err, &start, program)
		assert.Equal(t, want, start.ExitCode, err)
		assert.True(t, strings.HasPrefix(err.Error(), `starting "`+program+`": `), err)
		assert.NotContains(t, strings.TrimPrefix(err.Error(), `starting "`+program), dir, "the name comes once")
	}
}

func TestNothingStartsWhenTheContextHasEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("lost")
	cancel(cause)
	marker := filepath.Join(t.TempDir(), "ran")
	_, err := supervise.Run(ctx, shell("touch "+marker))
	require.ErrorIs(t, err, cause)
	assert.NoFileExists(t, marker)
}

func TestTheChildHasTheGivenEnvironmentAndAnEmptyStandardInput(t *testing.T) {
	t.Parallel()
	c := shell("cat; echo $A; env | wc -l")
	c.Env = []string{"A=1", "PATH=" + os.Getenv("PATH"), "PWD=/"}
	p := start(t, c)
	assert.Equal(t, "1", p.reads())
	assert.Equal(t, "3", strings.TrimSpace(p.reads()))
	assert.Zero(t, p.ends())
}

const grandchild = `sleep 1000 & echo $!; wait`

func TestTheWholeGroupEndsWithTheContext(t *testing.T) {
	t.Parallel()
	p := start(t, shell(grandchild))
	pid := p.readsPID()
	require.True(t, exists(pid))
	p.cancel()
	assert.Equal(t, supervise.Result{ExitCode: 143, Signal: syscall.SIGTERM, Stopped: true}, p.ends())
	requireGone(t, pid)
}

// The control: a signal to the child alone, as a program sends it that knows of no groups.
func TestWithoutTheGroupAGrandchildStays(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), "/bin/sh", "-c", grandchild)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	require.NoError(t, child.Process.Signal(syscall.SIGTERM))
	require.Error(t, child.Wait())
	assert.True(t, exists(pid))
	kill(t, pid)
}

func TestNegativeKillAfterKillsAtOnce(t *testing.T) {
	t.Parallel()
	c := shell(`trap "" TERM; echo ready; while :; do sleep 0.1; done`)
	c.KillAfter = -1
	p := start(t, c)
	assert.Equal(t, "ready", p.reads())
	p.cancel()
	assert.Equal(t, supervise.Result{ExitCode: 137, Signal: syscall.SIGKILL, Stopped: true}, p.ends())
}

func TestAChildThatIsStoppedEndsToo(t *testing.T) {
	t.Parallel()
	p := start(t, shell(`echo $$; kill -STOP $$; sleep 1000`))
	pid := p.readsPID()
	await.Until(t, patience, func() bool { return state(pid) == "T" })
	p.cancel()
	assert.Equal(t, supervise.Result{ExitCode: 143, Signal: syscall.SIGTERM, Stopped: true}, p.ends())
}

// A look at the list of processes misses what was begotten by a process that ended
// meanwhile.
func TestWhatForksAllTheTimeIsEnded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rounds, hop := filepath.Join(dir, "rounds"), filepath.Join(dir, "hop")
	require.NoError(t, os.WriteFile(rounds, nil, 0o600))
	require.NoError(t, os.WriteFile(hop, []byte("test -e "+rounds+" || exit; echo >>"+rounds+"; sh "+hop+" & exit"), 0o600))
	c := shell(`trap "" TERM; sh ` + hop + ` & exit 4`)
	c.KillAfter = 100 * time.Millisecond
	assert.Equal(t, supervise.Result{ExitCode: 4}, start(t, c).ends())
	size := func() int64 {
		info, err := os.Stat(rounds)
		require.NoError(t, err)
		return info.Size()
	}
	for end := time.Now().Add(patience); ; { // what was killed may be seen for a moment
		before := size()
		<-time.After(100 * time.Millisecond)
		if size() == before {
			return
		}
		require.True(t, time.Now().Before(end), "it goes on")
	}
}

// A silentLog does not return, as one that writes to a full pipe.
type silentLog struct {
	slog.Handler
	goOn chan struct{}
}

func (l silentLog) Enabled(context.Context, slog.Level) bool { return true }

func (l silentLog) Handle(context.Context, slog.Record) error {
	<-l.goOn
	return nil
}

func TestALogThatBlocksKeepsNoCommandAlive(t *testing.T) {
	t.Parallel()
	log := silentLog{slog.DiscardHandler, make(chan struct{})}
	c := shell(`trap "" TERM; echo $$; while :; do sleep 0.1; done`)
	c.KillAfter, c.Logger = 10*time.Millisecond, slog.New(log)
	p := start(t, c)
	pid := p.readsPID()
	p.cancel()
	requireGone(t, pid)
	close(log.goOn)
	assert.True(t, p.ends().Stopped)
}

func TestAProcessThatLeavesTheGroupIsLeftAlone(t *testing.T) {
	t.Parallel()
	p := start(t, shell(`setsid sh -c 'echo $$; exec sleep 1000 >&-' & wait`))
	pid := p.readsPID()
	p.cancel()
	p.ends()
	assert.True(t, exists(pid))
	kill(t, pid)
}

func TestSignalsReachTheChild(t *testing.T) {
	t.Parallel()
	p := start(t, shell(`for s in HUP QUIT USR1 USR2; do trap "echo $s" $s; done; trap 'exit 9' TERM; echo ready
		while :; do sleep 0.05; done`))
	assert.Equal(t, "ready", p.reads())
	for name, s := range map[string]syscall.Signal{"HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2} {
		p.signals <- s
		assert.Equal(t, name, p.reads())
	}
	p.signals <- syscall.SIGTERM
	assert.Equal(t, supervise.Result{ExitCode: 9, Interrupted: syscall.SIGQUIT}, p.ends(), "the first of those that end a program")
}

func TestSignalsReachGrandchildren(t *testing.T) {
	t.Parallel()
	p := start(t, shell(`trap : USR1; sh -c 'trap "echo got; exit" USR1; echo ready; while :; do sleep 0.05; done' & wait; wait`))
	assert.Equal(t, "ready", p.reads())
	p.signals <- syscall.SIGUSR1
	assert.Equal(t, "got", p.reads())
	assert.Equal(t, supervise.Result{}, p.ends())
}

func TestACommandCanRunAgainAndAgain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := shell("exit 7")
	for range 20 {
		result, err := supervise.Run(ctx, c)
		require.NoError(t, err)
		require.Equal(t, supervise.Result{ExitCode: 7}, result)
	}
}

func TestSignalsAreReadByNameAndNumber(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]syscall.Signal{
		"TERM": syscall.SIGTERM, "SIGTERM": syscall.SIGTERM, "15": syscall.SIGTERM, "sigint": syscall.SIGINT, "hup": syscall.SIGHUP,
		"QUIT": syscall.SIGQUIT, "KILL": syscall.SIGKILL, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "64": 64,
	} {
		got, err := supervise.ParseSignal(text)
		require.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "0", "65", "-1", "SIG", "NONE"} {
		_, err := supervise.ParseSignal(text)
		require.ErrorContains(t, err, "unknown signal")
	}
}

// child tells its process, and that it lives when it is asked.
const child = `trap "echo alive" USR1; echo $$; while :; do sleep 0.05; done`

// orphan kills the parent of such a child with SIGKILL, and returns the child and what it
// says.
func orphan(t *testing.T, parent *exec.Cmd) (pid int, lines *bufio.Scanner) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	parent.Stdout = w
	require.NoError(t, parent.Start())
	require.NoError(t, w.Close())
	lines = bufio.NewScanner(r)
	require.True(t, lines.Scan())
	pid, err = strconv.Atoi(lines.Text())
	require.NoError(t, err)
	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	return pid, lines
}

func TestTheChildDiesWithTheProcessThatRunsIt(t *testing.T) {
	t.Parallel()
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), "PGLATCH_SUPERVISE="+child)
	pid, _ := orphan(t, parent)
	requireGone(t, pid)
}

// The control: a shell asks the kernel for no such signal.
func TestWithoutTheSignalOfItsDeathTheChildGoesOn(t *testing.T) {
	t.Parallel()
	pid, lines := orphan(t, exec.CommandContext(t.Context(), "/bin/sh", "-c", `/bin/sh -c "$0" & wait`, child))
	require.NoError(t, syscall.Kill(pid, syscall.SIGUSR1))
	require.True(t, lines.Scan())
	assert.Equal(t, "alive", lines.Text())
	kill(t, pid)
}

// A child that has this process's command line stands for one before exec; one with
// another is the control.
func TestAChildThatIsStoppedBeforeExecGoesOn(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		args := []string{os.Args[0]}
		if before {
			args = os.Args
		}
		child := exec.Command(os.Args[0])
		child.Args = args
		child.Env = append(os.Environ(), "PGLATCH_SUPERVISE=exec sleep 1000")
		require.NoError(t, child.Start())
		t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
		require.NoError(t, child.Process.Signal(syscall.SIGSTOP))
		stopped := func() bool { return state(child.Process.Pid) == "T" }
		await.Until(t, patience, stopped)
		started := supervise.GoOnUntilStarted()
		if before {
			await.Until(t, patience, func() bool { return !stopped() })
		} else {
			require.Never(t, func() bool { return !stopped() }, 100*time.Millisecond, time.Millisecond)
		}
		started()
	}
}

func TestWhatIgnoresTheSignalIsKilledAfterAWhile(t *testing.T) {
	t.Parallel()
	c := shell(stubborn)
	c.KillAfter = 3 * time.Second // on a busy machine the child needs some of it to heed the signal
	p := start(t, c)
	pid := p.readsPID()
	from := time.Now()
	p.cancel()
	assert.Equal(t, supervise.Result{ExitCode: 143, Signal: syscall.SIGTERM, Stopped: true}, p.ends(), "the child itself heeded it")
	assert.GreaterOrEqual(t, time.Since(from), c.KillAfter)
	requireGone(t, pid)
}

func TestWhatGoesOnAfterASignalThatWasPassedOnIsEndedAfterDrain(t *testing.T) {
	t.Parallel()
	c := shell(`trap "" TERM; trap "echo asked" USR1; echo ready; while :; do sleep 0.05; done`)
	c.Signal, c.Drain, c.KillAfter = syscall.SIGUSR1, 100*time.Millisecond, 3*time.Second // on a busy machine the child needs some of it to say so
	p := start(t, c)
	assert.Equal(t, "ready", p.reads())
	from := time.Now()
	p.signals <- syscall.SIGTERM
	assert.Equal(t, "asked", p.reads())
	assert.Equal(t, supervise.Result{ExitCode: 137, Signal: syscall.SIGKILL, Interrupted: syscall.SIGTERM}, p.ends())
	assert.GreaterOrEqual(t, time.Since(from), c.Drain+c.KillAfter)
}

const stubborn = `sh -c 'trap "" TERM; echo $$; while :; do sleep 0.1; done' & wait`
