package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/demotest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The demo fails if one of its claims does not hold. So these rows of the specification hold if it claims them.
func TestScenario_HooksOfRealProcesses(t *testing.T) {
	t.Parallel()
	output, code := demotest.Play(t, nil, "-once")
	require.Zero(t, code, output)
	for row, claims := range map[string][]string{
		"hooks for one agent, at once":              {"no two overlap"},
		"hooks for different agents, at once":       {"went on at the same time"},
		"a background thread meets a locked agent":  {"no worker touched the agent while the hook had it", "the worker did its work when the agent was free"},
		"a wait that times out":                     {"423 Locked", "the answer names the holder"},
		"a process that dies has no lock":           {"kill -9", "B's prompt is in the database, and nothing of A's hook"},
		"a hook that lost its lock commits nothing": {"A found its lock lost", "A serves again"},
		"the list of locks":                         {"the list has the lock, its holder, and since when"},
	} {
		for _, claim := range claims {
			assert.Contains(t, output, claim, row)
		}
	}
}
