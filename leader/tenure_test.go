package leader

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func newBelief(t *testing.T, trust time.Duration, from belief) *tenure {
	t.Helper()
	v := &tenure{trust: trust, lost: func(cause error) error { return &LostError{Cause: cause} }}
	v.belief.Store(from.after(trust))
	ctx, cancel := context.WithCancelCause(t.Context())
	v.ctx, v.cancel = &tenureContext{Context: ctx, tenure: v}, cancel
	return v
}

func TestABeliefThatEndedIsNotRevivedByALateRenewal(t *testing.T) {
	t.Parallel()
	v := newBelief(t, time.Minute, belief{until: time.Now().Add(-time.Hour), boot: now().boot})
	assert.False(t, v.renew(now()))
	assert.False(t, v.alive())
	assert.False(t, v.renew(now()), "nor after somebody asked")
	assert.ErrorIs(t, v.ctx.Err(), context.Canceled)
	assert.ErrorIs(t, context.Cause(v.ctx), ErrLost)
}

func TestEitherClockEndsABelief(t *testing.T) {
	t.Parallel()
	from := now()
	assert.True(t, newBelief(t, time.Minute, from).alive())
	assert.False(t, newBelief(t, time.Minute, belief{until: from.until.Add(-time.Minute), boot: from.boot}).alive())
	assert.False(t, newBelief(t, time.Minute, belief{until: from.until, boot: from.boot - time.Minute}).alive(), "the machine was suspended")
}

func TestAContextMadeFromTheLeadersEndsWithItsClock(t *testing.T) {
	t.Parallel()
	v := newBelief(t, time.Minute, belief{until: now().until, boot: now().boot - time.Minute}) // no timer has run
	child, cancel := context.WithCancel(v.ctx)
	defer cancel()
	assert.NoError(t, child.Err(), "it has no clock of its own")
	assert.Error(t, v.ctx.Err())
	assert.Error(t, child.Err())
	assert.ErrorIs(t, context.Cause(child), errExpired)
}
