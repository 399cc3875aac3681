package lockmode

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
)

func TestATestRunsInEachModeWithItsSessions(t *testing.T) {
	t.Parallel()
	var seen []Mode
	InTurn(t, func(t *testing.T) {
		t.Helper()
		t.Run("deeper", func(t *testing.T) {
			seen = append(seen, Of(t))
			config := Of(t).Config(advisory.Config{MaxConns: 3})
			assert.Equal(t, 3, config.MaxConns-min(1, config.LocksPerConn-1), "connections for locks, or for waits")
		})
	})
	require.Equal(t, All, seen)
	again, ok := of("TestThatRunsTwice/multiplexed#01/deeper")
	require.True(t, ok)
	require.Equal(t, Multiplexed, again)
	_, ok = of("TestOfNoMode/some dedicated case")
	require.False(t, ok, "a mode is a whole name of a subtest")
}

func TestATestOfOneModeRunsInThatAlone(t *testing.T) {
	onlyIn[t.Name()] = restriction{Multiplexed, "to see it"}
	defer delete(onlyIn, t.Name())
	var seen []Mode
	InTurn(t, func(t *testing.T) { t.Helper(); seen = append(seen, Of(t)) })
	require.Equal(t, []Mode{Multiplexed}, seen)
}

// A renamed test would silently run in both modes again.
func TestEachRestrictionIsOfATestThatExists(t *testing.T) {
	t.Parallel()
	for name, r := range onlyIn {
		require.NotEmpty(t, r.why, name)
		out, err := exec.CommandContext(t.Context(), "grep", "-rl", "--include=*_test.go", "^func "+name+"(", "../../../..").Output()
		require.NoError(t, err, "%s: no such test", name)
		require.Equal(t, 1, strings.Count(string(out), "\n"), "%s: %s", name, out)
	}
}
