package agents_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/internal/pgtest"
)

func TestScenario_StaleOrmReadPrevention(t *testing.T) {
	t.Parallel()
	var sent atomic.Int32
	a := start(t, agents.Config{DSN: pgtest.DSN(t), InjectSkills: func(context.Context, *agents.Agent) error {
		sent.Add(1)
		return nil
	}})
	x := a.call("session-start", agents.Hook{SessionID: "s"})
	assert.EqualValues(t, 1, sent.Load(), "session-start injects")

	stale := &agents.Agent{ID: x.AgentID} // read before the injection
	ran, err := a.Injector().Inject(t.Context(), stale)
	require.NoError(t, err)
	assert.False(t, ran)
	assert.NotNil(t, stale.PromptInjectedAt, "it was read again")
	assert.EqualValues(t, 1, sent.Load())

	a.exec(`UPDATE hooks.agents SET prompt_injected_at = NULL`)
	ran, err = a.Injector().Inject(t.Context(), stale)
	require.NoError(t, err)
	assert.True(t, ran, "control: the row decides, also the other way round")
	assert.EqualValues(t, 2, sent.Load())
}
