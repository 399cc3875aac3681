package supervise_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/supervise"
)

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
		require.Eventually(t, stopped, patience, time.Millisecond)
		started := supervise.GoOnUntilStarted()
		if before {
			require.Eventually(t, func() bool { return !stopped() }, patience, time.Millisecond)
		} else {
			require.Never(t, func() bool { return !stopped() }, 100*time.Millisecond, time.Millisecond)
		}
		started()
	}
}
