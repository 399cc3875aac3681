package advisory_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/tabletrace"
	"github.com/pglatch/pglatch/introspect"
)

// crossing in the environment makes the test's program another process: it holds one lock and,
// when it is told to, waits for another.
const crossing = "PGLATCH_TEST_CROSSING"

func TestMain(m *testing.M) {
	if what := os.Getenv(crossing); what != "" {
		if err := cross(context.Background(), what); err != nil {
			var deadlock *advisory.DeadlockError
			if !errors.As(err, &deadlock) {
				deadlock = &advisory.DeadlockError{}
			}
			fmt.Println("failed:", err, "names:", deadlock.Cycle)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(tabletrace.Main(func() int { return pgtest.Run(m) }))
}

// cross is that other process: "1 2 true postgres://…" holds agent/1 and wants agent/2.
func cross(ctx context.Context, what string) error {
	var first, second int64
	var breaks bool
	var dsn string
	if _, err := fmt.Sscanf(what, "%d %d %t %s", &first, &second, &breaks, &dsn); err != nil {
		return err
	}
	locker, err := advisory.Open(ctx, advisory.Config{
		DSN: dsn, Wait: 5 * time.Minute, BreakDeadlocks: breaks, Answer: introspect.Config{Service: fmt.Sprintf("service-%d", first)},
	})
	if err != nil {
		return err
	}
	defer locker.Close()
	return locker.Do(ctx, agents.ID(first), func(ctx context.Context) error {
		fmt.Println("held")
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			return err
		}
		return locker.With(advisory.Options{Label: "transfer"}).Do(ctx, agents.ID(second), func(context.Context) error { return nil })
	})
}

// A crosser is a process that runs cross.
type crosser struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	stdin io.WriteCloser
}

func startCrosser(t *testing.T, dsn string, first, second int64, breaks bool) *crosser {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %t %s", crossing, first, second, breaks, dsn))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	c := &crosser{cmd, bufio.NewScanner(out), stdin}
	require.True(t, c.lines.Scan())
	require.Equal(t, "held", c.lines.Text())
	return c
}

func (c *crosser) proceed(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(c.stdin, "\n")
	require.NoError(t, err)
}

// result is what it printed last: "" = it had both locks.
func (c *crosser) result() (text string) {
	for c.lines.Scan() {
		text = c.lines.Text()
	}
	return text
}

func TestADeadlockAcrossProcessesIsBrokenAndNamed(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, c := startCrosser(t, dsn, 1, 2, true), startCrosser(t, dsn, 2, 3, true), startCrosser(t, dsn, 3, 1, true)
	for _, process := range []*crosser{a, b, c} {
		process.proceed(t)
	}
	var failed []string
	for _, process := range []*crosser{a, b, c} {
		if text := process.result(); text != "" {
			failed = append(failed, text)
		}
	}
	require.NotEmpty(t, failed, "none can have got its locks otherwise")
	require.Less(t, len(failed), 3, "%q", failed)
	for _, text := range failed {
		require.Contains(t, text, "deadlock: service-")
		for i := 1; i <= 3; i++ {
			require.Contains(t, text, fmt.Sprintf("service-%d@", i))
			require.Contains(t, text, fmt.Sprintf("agent/%d (transfer)", i))
		}
		require.Regexp(t, `names: \[agent/\d \S+ agent/\d\]`, text, "the key that it waits for, and the one that it holds")
	}
}

func TestADeadlockAcrossProcessesIsSeenAndStaysIfNobodyMayBreakIt(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b := startCrosser(t, dsn, 1, 2, false), startCrosser(t, dsn, 2, 1, false)
	a.proceed(t)
	b.proceed(t)
	v := view(t, dsn)
	var before introspect.Cycle
	seen := 0
	require.Eventually(t, func() bool {
		answers, err := introspect.Ask(t.Context(), v.connection(), introspect.Question{})
		require.NoError(t, err)
		cycles := answers.Cycles()
		if len(cycles) == 1 && before.Same(cycles[0]) {
			seen++
		}
		if len(cycles) == 1 {
			before = cycles[0]
		}
		return seen > 20 && before.Youngest().Wait.Age > 3*time.Second // a breaker would have ended it
	}, 4*time.Minute, 20*time.Millisecond) // the processes wait for 5 min
	require.Contains(t, before.String(), "waits for agent/1 (transfer), which service-1@")
	require.True(t, strings.Contains(before.String(), "agent/2 (transfer)"))
}
