package cli_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// offers are what the shell would offer.
func offers(t *testing.T, env []string, words ...string) (all []string) {
	t.Helper()
	stdout, stderr, code := clitest.Run(t, env, append([]string{"__complete"}, words...)...)
	require.Zero(t, code, stderr)
	for line := range strings.Lines(stderr) {
		assert.Regexp(t, regexp.MustCompile(`^Completion ended with directive`), line, "cobra's own, for people: the scripts drop it")
	}
	for line := range strings.Lines(stdout) {
		if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(line, ":") {
			all = append(all, word)
		}
	}
	return all
}

func TestTheShellOffersWhatIsHeldAndTheValuesOfFlags(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	l, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, Answer: introspect.Config{Service: "billing"}})
	require.NoError(t, err)
	defer l.Close()
	key, err := namespace.Must(2, "order").Text("o-9f3c")
	require.NoError(t, err)
	_, err = l.Acquire(t.Context(), key)
	require.NoError(t, err)
	_, err = l.Acquire(t.Context(), namespace.Pair(1, 100))
	require.NoError(t, err)
	env := clitest.At(dsn)
	eventually := func(env []string, want []string, words ...string) { // who presses TAB is not kept waiting for a busy process
		t.Helper()
		slices.Sort(want)
		var got []string
		clitest.Eventually(t, func() bool {
			got = offers(t, env, words...)
			slices.Sort(got)
			return slices.Equal(want, got)
		}, func() string { return fmt.Sprint(words, " offers ", got) })
	}
	eventually(env, []string{"order/o-9f3c"}, "status", "order/o")

	eventually(env, []string{"name/", "order/", "order/o-9f3c", "1:100"}, "status", "")
	eventually(env, []string{"order/o-9f3c"}, "run", "order/")
	eventually(env, []string{"1:100"}, "ls", "1:")
	assert.Empty(t, offers(t, env, "ls", "agent/"))
	eventually(append(env, "PGLATCH_NAMESPACES=agent=1"), []string{"agent/", "name/", "order/", "order/o-9f3c", "agent/100"}, "ask", "")
	eventually(env, []string{"order=2"}, "ls", "--namespace", "")
	clitest.Eventually(t, func() bool { return len(offers(t, env, "terminate", "")) == 2 }, func() string { return "two sessions hold something" })

	for words, want := range map[string]string{
		"ls --output ": "text json jsonl", "ls --color ": "auto always never", "ls --sort ": "trouble wait waiters held key",
		"run --on-ask ": "ignore term", "leader run --restart ": "always on-failure never",
	} {
		assert.Equal(t, strings.Fields(want), offers(t, env, append(strings.Fields(words), "")...), words)
	}
}

func TestWithoutADatabaseTheShellIsToldOfNoError(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{clitest.Nowhere, "postgres://u@" + clitest.SilentHost(t) + "/d?sslmode=disable", "no connection string"} {
		for _, words := range [][]string{{"status", ""}, {"terminate", ""}, {"ls", "-v", "--namespace", ""}, {"ls", "-o", "xml", ""}} {
			start := time.Now()
			for _, word := range offers(t, clitest.At(dsn, "PGLATCH_NAMESPACES=agent=1"), words...) {
				assert.Contains(t, []string{"agent/", "name/"}, word)
			}
			assert.Less(t, time.Since(start), await.Soon*3/4)
		}
	}
}
