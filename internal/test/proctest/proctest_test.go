package proctest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

const testVariable = "PGLATCH_PROCTEST_TEST"

// repeating is the role of a process that repeats each line of its input, behind a prefix.
const repeating = "repeater"

func TestMain(m *testing.M) {
	proctest.Play(repeating, func(_ context.Context, prefix string) error {
		fmt.Fprintln(os.Stderr, "address=127.0.0.1:80")
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			fmt.Println(prefix, lines.Text())
		}
		return errors.New("its input has ended")
	})
	leak.Main(m)
}

func TestAProcessIsToldAndAnswersUntilItsInputEnds(t *testing.T) {
	t.Parallel()
	p := proctest.Start(t, proctest.As(t, repeating, "heard"))
	assert.Equal(t, []string{"address=127.0.0.1:80", "80"}, p.Match(&p.Stderr, `address=\S+:(\d+)`))
	p.Tell("a")
	p.Expect("heard a")
	for _, line := range []string{"b", "c", "d", "e"} {
		p.Tell(line)
	}
	assert.Equal(t, "heard c", p.Says("heard c"), "other lines are passed over")
	p.Saying(&p.Stdout, "heard e")
	p.CloseStdin()
	assert.Equal(t, 1, p.Wait())
	assert.Contains(t, p.Stderr.String(), "\nrepeater: its input has ended\n")
	assert.Equal(t, 2, p.Stdout.Unread())
	assert.Equal(t, []string{"heard d", "heard e"}, slices.Collect(p.Lines()))
	assert.Equal(t, "heard a\nheard b\nheard c\nheard d\nheard e\n", p.Stdout.String())
}

func TestAStoppedProcessIsKilled(t *testing.T) {
	t.Parallel()
	p := proctest.Start(t, proctest.As(t, repeating, "heard", "env"))
	p.Saying(&p.Stderr, "address=")
	p.Signal(syscall.SIGSTOP)
	p.Kill()
	assert.Equal(t, 128+9, p.Wait())
	require.ErrorIs(t, syscall.Kill(p.PID(), 0), syscall.ESRCH)
}

func TestAProcessEndsWithItsTest(t *testing.T) {
	t.Parallel()
	pid := 0
	t.Run("test", func(t *testing.T) {
		p := proctest.Start(t, proctest.As(t, repeating, "heard"))
		p.Saying(&p.Stderr, "address=")
		pid = p.PID()
		require.NoError(t, syscall.Kill(pid, 0), "the control")
	})
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
}

func TestATestRunsInAnotherProcess(t *testing.T) {
	t.Parallel()
	p := proctest.Tests(t, "^TestTheVariableIsSet$", testVariable+"=1")
	assert.Zero(t, p.Wait())
	assert.Contains(t, p.Stdout.String(), "--- PASS: TestTheVariableIsSet")
}

func TestTheVariableIsSet(t *testing.T) {
	if os.Getenv(testVariable) == "" {
		t.Skip("TestATestRunsInAnotherProcess runs it")
	}
}
