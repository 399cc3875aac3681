package agents_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestScenario_StaleOrmReadPrevention(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	a := start(t, agents.Config{DSN: pgtest.DSN(t), Skills: func(context.Context, *agents.Agent) (string, error) {
		asked.Add(1)
		return "write tests first", nil
	}})
	x := a.call("session-start", agents.Hook{SessionID: "s"})
	assert.Equal(t, "write tests first", x.Skills, "session-start injects")

	stale := &agents.Agent{ID: x.AgentID} // read before the injection
	skills, err := a.Injector().Inject(t.Context(), stale)
	require.NoError(t, err)
	assert.Empty(t, skills)
	assert.NotNil(t, stale.PromptInjectedAt, "it was read again")
	assert.EqualValues(t, 1, asked.Load())

	a.exec(`UPDATE hooks.agents SET prompt_injected_at = NULL`)
	skills, err = a.Injector().Inject(t.Context(), stale)
	require.NoError(t, err)
	assert.NotEmpty(t, skills, "control: the row decides, also the other way round")
	assert.EqualValues(t, 2, asked.Load())
}

func TestTheFirstHookThatFindsSkillsInjectsThemAndNoOther(t *testing.T) {
	t.Parallel()
	var now atomic.Value
	now.Store("")
	broken := errors.New("the disk is away")
	config := agents.Config{DSN: pgtest.DSN(t), Skills: func(context.Context, *agents.Agent) (string, error) {
		if skills := now.Load().(string); skills != "broken" {
			return skills, nil
		}
		return "", broken
	}}
	a, b := start(t, config), start(t, config)
	hook := agents.Hook{SessionID: "s"}
	assert.Empty(t, a.call("session-start", hook).Skills, "there are none yet")
	now.Store("broken")
	assert.Empty(t, a.call("pre-tool-use", hook).Skills, "the hook is done all the same")
	now.Store("new skills")
	assert.Equal(t, "new skills", b.call("pre-tool-use", hook).Skills, "the next hook reads them again, at any replica")
	now.Store("newer skills")
	assert.Empty(t, a.call("post-tool-use", hook).Skills)
	assert.Empty(t, a.call("session-start", hook).Skills, "a session that is resumed has them")
}

func TestAnAgentThatHasEndedGetsNoSkills(t *testing.T) {
	t.Parallel()
	var skills atomic.Value
	skills.Store("")
	a := start(t, agents.Config{DSN: pgtest.DSN(t), Skills: func(context.Context, *agents.Agent) (string, error) {
		return skills.Load().(string), nil
	}})
	a.call("session-start", agents.Hook{SessionID: "s"})
	skills.Store("too late")
	assert.Empty(t, a.call("session-end", agents.Hook{SessionID: "s"}).Skills)
	assert.True(t, ask[bool](a, `SELECT prompt_injected_at IS NULL FROM hooks.agents`))
}
