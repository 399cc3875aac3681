package lockcmd_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

const names = "PGLATCH_NAMESPACES=agent=1,order=2"

func TestTheListsShowOneHolderAndTwoWaitersOfThreeLockers(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		env := clitest.At(dsn, names)
		queueOfLockers(t, dsn, namespace.Must(1, "agent").ID(42))

		var stdout string
		list := func(args ...string) func() bool { // who waits is in no queue for a moment after each wait step
			return func() bool {
				var code int
				stdout, _, code = clitest.Run(t, env, args...)
				require.Zero(t, code)
				require.NotContains(t, stdout, "@", "an unknown lock")
				return strings.Contains(stdout, "second")
			}
		}
		said := func() string { return stdout }
		ls := list("ls", "-o", "jsonl")
		await.Until(t, await.Soon, func() bool { // either waiter can be between two wait steps
			if !ls() {
				return false
			}
			var got []string
			for _, l := range clitest.DecodeLines[monitor.Lock](t, stdout) {
				got = append(got, fmt.Sprintf("%s %s %v", l.ApplicationName, l.Key.Text, l.Granted))
			}
			return slices.Equal([]string{"holder agent/42 true", "first agent/42 false", "second agent/42 false"}, got)
		}, said)

		tree := list("tree")
		await.Until(t, await.Soon, func() bool { // the server tells who waits for whom a moment after it shows who waits
			return tree() && regexp.MustCompile(`backend \d+ \((\w+)\).*`).ReplaceAllString(stdout, "$1") == "agent/42\n● held by holder\n├─ waits: first\n└─ waits: second\n"
		}, said)

		status := list("status", "--json", "agent/42")
		await.Until(t, await.Soon, func() bool {
			if !status() {
				return false
			}
			s := clitest.Decode[struct{ Holders, Waiters []monitor.Lock }](t, stdout)
			return len(s.Holders) == 1 && len(s.Waiters) == 2
		}, said)
	})
}

func TestTheQueryOfKeyShowsTheWholeQueue(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	key := namespace.Must(1, "agent").ID(42)
	holder, first, second := clitest.Connect(t, dsn, "holder"), clitest.Connect(t, dsn, "first"), clitest.Connect(t, dsn, "second")
	turnstile, _ := turnstile.Of(key.Tag()).Single()
	clitest.Execute(t, holder, "SELECT pg_advisory_lock(1, 42)")
	clitest.Execute(t, first, fmt.Sprintf("SELECT pg_advisory_lock(%d)", turnstile))
	clitest.WaitFor(t, dsn, first, "SELECT pg_advisory_lock(1, 42)")
	clitest.WaitFor(t, dsn, second, fmt.Sprintf("SELECT pg_advisory_lock(%d)", turnstile))

	stdout, _, code := clitest.Run(t, clitest.At(dsn, names), "key", "--json", "agent/42")
	require.Zero(t, code)
	d := clitest.Decode[struct {
		Turnstile int64  `json:"turnstile,string"`
		Query     string `json:"query_sql"`
	}](t, stdout)
	assert.Equal(t, turnstile, d.Turnstile)
	rows, err := clitest.Connect(t, dsn, "look").Query(t.Context(), "SELECT lock, application_name, granted FROM ("+strings.TrimSuffix(d.Query, ";")+") AS q")
	require.NoError(t, err)
	var got []string
	for rows.Next() {
		values, err := rows.Values()
		require.NoError(t, err)
		got = append(got, fmt.Sprintf("%v: %v %v", values...))
	}
	require.NoError(t, rows.Err())
	assert.ElementsMatch(t, []string{"key: holder true", "turnstile: first true", "key: first false", "turnstile: second false"}, got)
}

// queueOfLockers has three Lockers, as of three processes, at a key until the test
// ends: the holder, the first and the second.
func queueOfLockers(t *testing.T, dsn string, key namespace.Key) {
	t.Helper()
	m, err := monitor.Open(monitor.Config{DSN: dsn, MinInterval: 1})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	for i, name := range []string{"holder", "first", "second"} {
		locker, err := advisory.Open(t.Context(), lockmode.Of(t).Config(advisory.Config{
			DSN: dsn, ApplicationName: name, Answer: introspect.Config{Off: true}, // PostgreSQL alone tells who waits
		}))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if _, err := locker.Acquire(ctx, key); err == nil {
				<-ctx.Done()
			}
		}()
		t.Cleanup(func() {
			cancel()
			<-ended
			locker.Close()
		})
		await.Until(t, await.Soon, func() bool {
			s, err := m.Snapshot(t.Context())
			return err == nil && len(s.Locks) > i
		}, "%s is not seen", name)
	}
}
