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
func TestScenario_AC1_AC2_AC4_LeadershipOfRealProcesses(t *testing.T) {
	t.Parallel()
	output, code := demotest.Play(t, nil, "-once")
	require.Zero(t, code, output)
	for row, claims := range map[string][]string{
		"AC1: one node succeeds and starts all schedulers":        {`logs "acquired leadership, starting schedulers", and starts all 4`, "/leader answers 200 at the leader and 503 at the follower"},
		"AC1: a loser starts none and serves queries":             {"every run of a scheduler is by ", "A answered 10 and B 10"},
		"AC2: a follower says why, and initializes no scheduler":  {`the follower logs "not leader, skipping scheduler startup", and builds none`, "has said once that it follows"},
		"AC4: the lock is free as soon as the leader has crashed": {"the follower took over at once", "no run of an old one came after a run of a new one"},
		"all nodes claim and do jobs":                             {"of 40 jobs A did "},
		"all nodes send heartbeats":                               {"both beat"},
		"all nodes answer for their health":                       {"/readyz, /livez and /healthz answer 200 at both"},
		"all nodes reconcile":                                     {"was queued again when its heartbeat failed to come"},
		"a leader that ends hands over":                           {"the schedulers stopped in reverse order", "leadership went when they had stopped, not before"},
	} {
		for _, claim := range claims {
			assert.Contains(t, output, claim, row)
		}
	}
}
