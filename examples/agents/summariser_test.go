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

// newTurn makes a turn to summarise.
func newTurn(a *replica) int64 {
	a.t.Helper()
	a.call("session-start", agents.Hook{SessionID: "s"})
	a.call("user-prompt-submit", agents.Hook{SessionID: "s", Prompt: "a long text"})
	return ask[int64](a, `SELECT id FROM hooks.turns`)
}

func TestScenario_ConcurrentSummarisationAttempts(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	var calls atomic.Int32
	called, proceed := make(chan struct{}), make(chan struct{})
	model := func(ctx context.Context, text string) (string, error) {
		calls.Add(1)
		close(called) // panics when called twice
		select {
		case <-proceed:
		case <-ctx.Done():
		}
		return "summary of " + text, nil
	}
	a, b := start(t, agents.Config{DSN: dsn, Model: model}), start(t, agents.Config{DSN: dsn, Model: model})
	turn := newTurn(a)

	type result struct {
		summary string
		ok      bool
		err     error
	}
	first := make(chan result, 1)
	go func() {
		summary, ok, err := a.Summariser().Summarise(t.Context(), turn)
		first <- result{summary, ok, err}
	}()
	<-called
	summary, ok, err := b.Summariser().Summarise(t.Context(), turn)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Empty(t, summary)
	close(proceed)
	assert.Equal(t, result{"summary of a long text", true, nil}, <-first)
	assert.EqualValues(t, 1, calls.Load())
}

func TestScenario_TurnAlreadySummarised(t *testing.T) {
	t.Parallel()
	a := start(t, agents.Config{DSN: pgtest.DSN(t), Model: func(context.Context, string) (string, error) {
		return "", errors.New("the model was called")
	}})
	turn := newTurn(a)
	a.exec(`UPDATE hooks.turns SET summary = 'there before'`)
	summary, ok, err := a.Summariser().Summarise(t.Context(), turn)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, "there before", summary)
}

func TestAFailedModelCallLeavesTheTurnAsItWas(t *testing.T) {
	t.Parallel()
	broken := errors.New("out of words")
	a := start(t, agents.Config{DSN: pgtest.DSN(t), Model: func(context.Context, string) (string, error) { return "half", broken }})
	turn := newTurn(a)
	summary, ok, err := a.Summariser().Summarise(t.Context(), turn)
	require.ErrorIs(t, err, broken)
	assert.False(t, ok)
	assert.Empty(t, summary)
	assert.True(t, ask[bool](a, `SELECT summary IS NULL FROM hooks.turns WHERE id = $1 FOR UPDATE NOWAIT`, turn), "and unlocked")
}

func TestATextThatComesAgainCostsNoModelCall(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	a := start(t, agents.Config{DSN: pgtest.DSN(t), Model: func(context.Context, string) (string, error) {
		calls.Add(1)
		return "short", nil
	}})
	newTurn(a)
	a.call("user-prompt-submit", agents.Hook{SessionID: "s", Prompt: "a long text"})
	for turn := int64(1); turn <= 2; turn++ {
		summary, ok, err := a.Summariser().Summarise(t.Context(), turn)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, "short", summary)
	}
	assert.Equal(t, 2, ask[int](a, `SELECT count(*) FROM hooks.turns WHERE summary = 'short'`))
	assert.EqualValues(t, 1, calls.Load())
}
