package leadercmd_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/test/clitest"
)

func TestResignPassesLeadershipToTheNodeThatIsNamed(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	env := clitest.At(dsn)
	_, stderr, code := clitest.Run(t, env, "leader", "resign", "7:1")
	require.Equal(t, program.ExitFree, code, stderr)
	stdout, stderr, code := clitest.Run(t, env, "leader", "resign", "7:1", "--to", "nobody")
	require.Equal(t, program.ExitFree, code, stderr)
	assert.Equal(t, "7:1 is free\n", stdout)

	shows := func(pattern string, args ...string) {
		t.Helper()
		var stdout string
		clitest.Eventually(t, func() bool {
			stdout, _, _ = clitest.Run(t, env, args...)
			return regexp.MustCompile(pattern).MatchString(stdout)
		}, func() string { return pattern + "\n" + stdout })
	}
	node := func(id string) *clitest.Program {
		p := clitest.Start(t, env, "leader", "run", "7:1", "--id", id, "--allow-resign")
		shows("node "+id+", (leader|follower)", "status", "7:1")
		return p
	}
	first := node("a")
	node("b")
	node("c")
	shows(`(?m)^7:1 +election +\S+@\S+:\d+ +[\d.hms]+ +2 `, "ls")
	shows("7:1 is an election", "status", "7:1")

	resign := func(to string, good func(code int) bool) {
		t.Helper()
		clitest.Eventually(t, func() bool { // a busy process can answer too late: it is asked again
			stdout, stderr, code = clitest.Run(t, env, "leader", "resign", "7:1", "--to", to)
			return good(code)
		}, func() string { return fmt.Sprintf("--to %s: exit %d\n%s%s", to, code, stdout, stderr) })
	}
	resign("c", func(code int) bool {
		return code == 0 && strings.Contains(stdout, "accepts it") && !strings.Contains(stdout, "any candidate may lead next")
	})
	assert.Regexp(t, `(?m)^7:1: \S+ (\(backend \d+\) )?accepts it: (its work is drained, then another candidate leads|it leads)$`, stdout)
	shows("^7:1: c leads in term ", "leader", "status", "7:1")
	assert.NotContains(t, first.Stderr.String(), "lost")

	resign("c", func(code int) bool { return code == 0 && strings.Contains(stdout, "it leads") })

	nobody := regexp.MustCompile(`To is "d", and the election has no candidate of that identity: name one of those that take part \(\w, \w, \w\), or nobody, and any of them may lead next`)
	resign("d", func(int) bool { return nobody.MatchString(stderr) })
	assert.Equal(t, program.ExitUsage, code)
	shows("^7:1: c leads in term ", "leader", "status", "7:1")
}

func TestALeaderThatDoesNotAllowItDoesNotResign(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	node := clitest.Start(t, clitest.At(dsn), "leader", "run", "7:1", "--id", "a")
	node.Saying(&node.Stderr, "lock_acquired")
	var stdout, stderr string
	var code int
	clitest.Eventually(t, func() bool { // it answers a moment after it leads
		stdout, stderr, code = clitest.Run(t, clitest.At(dsn), "leader", "resign", "7:1")
		return strings.Contains(stdout, "refuses it")
	}, func() string { return stdout + stderr })
	assert.Equal(t, program.ExitRefused, code)
	assert.Contains(t, stdout, "started without --allow-resign")
	assert.NotContains(t, node.Stderr.String(), "to=releasing")
}
