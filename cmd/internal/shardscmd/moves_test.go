package shardscmd_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
)

// requireMoves has people look at two nodes, and move what these own, by the program.
func requireMoves(t *testing.T, env []string, group string) {
	t.Helper()
	command := func(words ...string) (string, string, int) {
		t.Helper()
		return clitest.Run(t, env, append([]string{"shards"}, words...)...)
	}
	var stdout, stderr string
	settled := func(owned ...int) {
		t.Helper()
		await.Until(t, await.Soon, func() bool {
			var code int
			stdout, stderr, code = command("ls", group, "-o", "json")
			if code != 0 {
				return false
			}
			var counts []int
			for _, n := range clitest.Decode[listing](t, stdout).Nodes {
				counts = append(counts, n.Owned)
			}
			return assert.ObjectsAreEqual(owned, counts)
		}, func() string { return stdout + stderr })
	}
	settled(2, 2)
	stdout, stderr, code := command("drain", group, "web-1", "--wait", "1m")
	require.Zero(t, code, stderr)
	assert.Regexp(t, `^web-1 of \w+ is drained: it owns no shard\n$`, stdout)
	settled(0, 4)
	_, stderr, code = command("drain", group, "web-1", "--undo")
	require.Zero(t, code, stderr)
	settled(2, 2)

	stdout, _, _ = command("ls", group, "-o", "json")
	first := clitest.Decode[listing](t, stdout).Shards[0]
	to := map[string]string{"web-1": "web-2", "web-2": "web-1"}[first.Owner]
	_, stderr, code = command("pin", group, first.Shard, to, "--wait", "1m")
	require.Zero(t, code, stderr)
	stdout, _, _ = command("ls", group, "-o", "json", "--prefix", first.Shard)
	moved := clitest.Decode[listing](t, stdout).Shards[0]
	assert.Equal(t, []string{to, to}, []string{moved.Owner, moved.PinnedTo})
	assert.Greater(t, moved.FencingToken, first.FencingToken)
	_, stderr, code = command("pin", group, first.Shard, "--remove")
	require.Zero(t, code, stderr)

	for last, want := range map[string][]string{"ls --node": {"web-1", "web-2"}, "drain": {"web-1", "web-2"}, "pin": {"a", "b", "c", "d"}} {
		name, flag, _ := strings.Cut(last, " ")
		words := []string{"__complete", "shards", name, group}
		if flag != "" {
			words = append(words, flag)
		}
		var offered []string
		await.Until(t, await.Soon, func() bool { // who presses TAB is not kept waiting for a busy server
			stdout, stderr, code := clitest.Run(t, env, append(words, "")...)
			require.Zero(t, code, stderr)
			offered = nil
			for line := range strings.Lines(stdout) {
				if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(line, ":") {
					offered = append(offered, word)
				}
			}
			return slices.Equal(want, offered)
		}, func() string { return fmt.Sprint(last, " offers ", offered) })
	}
}
