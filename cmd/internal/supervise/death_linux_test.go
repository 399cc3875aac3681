package supervise_test

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/supervise"
	"github.com/pglatch/pglatch/internal/test/await"
)

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
