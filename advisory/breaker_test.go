package advisory_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
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

// startCrosser starts a process that runs cross. A line tells it to go on.
func startCrosser(t *testing.T, dsn string, first, second int64, breaks bool) *proctest.Process {
	t.Helper()
	p := proctest.Start(t, proctest.Self(t, fmt.Sprintf("%s=%d %d %t %s", crossing, first, second, breaks, dsn)))
	p.Expect("held")
	return p
}

func TestADeadlockAcrossProcessesIsBrokenAndNamed(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, c := startCrosser(t, dsn, 1, 2, true), startCrosser(t, dsn, 2, 3, true), startCrosser(t, dsn, 3, 1, true)
	for _, process := range []*proctest.Process{a, b, c} {
		process.Tell("go on")
	}
	var failed []string
	for _, process := range []*proctest.Process{a, b, c} {
		failed = slices.AppendSeq(failed, process.Lines()) // nothing if it had both locks
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
	a.Tell("go on")
	b.Tell("go on")
	v := view(t, dsn)
	var before introspect.Cycle
	seen := 0
	await.Until(t, 4*time.Minute, func() bool {
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
	}) // the processes wait for 5 min
	require.Contains(t, before.String(), "waits for agent/1 (transfer), which service-1@")
	require.True(t, strings.Contains(before.String(), "agent/2 (transfer)"))
}
