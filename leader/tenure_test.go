package leader

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// electedOnce is a Backend that is won once.
type electedOnce struct{ won atomic.Bool }

func (o *electedOnce) TryAcquire(context.Context, string, time.Duration) (bool, error) {
	return !o.won.Swap(true), nil
}
func (o *electedOnce) Renew(context.Context, string, time.Duration) error { return nil }
func (o *electedOnce) Release(context.Context, string) error              { return nil }

func TestWorkThatSleptThroughASuspensionIsToldBeforeAnyTimerRuns(t *testing.T) {
	t.Parallel()
	e, err := New(Config{Name: "scheduler", Backend: &electedOnce{}, LeaseDuration: time.Hour})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, e.Run(ctx, func(ctx context.Context) error {
		defer cancel()
		assert.NoError(t, ctx.Err())
		v := e.current.Load()
		v.belief.Store(&belief{until: time.Now().Add(time.Hour), boot: now().boot - 1}) // only one clock ran on
		assert.ErrorIs(t, ctx.Err(), context.Canceled)
		assert.ErrorIs(t, context.Cause(ctx), ErrLost)
		assert.False(t, e.IsLeader())
		return nil
	}))
}
