package leader

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/renew"
)

func termFrom(t *testing.T, trust time.Duration, from boottime.Moment) *activeTerm {
	t.Helper()
	v := &activeTerm{trust: trust, lost: func(cause error) error { return &LostError{Cause: cause} }}
	v.until.Set(from.Add(trust))
	v.ctx, v.cancel = boottime.NewContext(t.Context(), v.expired)
	return v
}

func TestALeaseThatEndedIsNotRevivedByALateRenewal(t *testing.T) {
	t.Parallel()
	v := termFrom(t, time.Minute, boottime.Moment{Mono: time.Now().Add(-time.Hour), Boot: boottime.Now()})
	e, _ := (&keeper{t: v}).judge(nil, boottime.Present())
	assert.Equal(t, renew.Gone, e)
	assert.False(t, v.alive())
	assert.False(t, v.until.Extend(boottime.Present().Add(v.trust)), "nor after somebody asked")
	assert.ErrorIs(t, v.ctx.Err(), context.Canceled)
	assert.ErrorIs(t, context.Cause(v.ctx), ErrLost)
}

func TestEitherClockEndsALease(t *testing.T) {
	t.Parallel()
	from := boottime.Present()
	assert.True(t, termFrom(t, time.Minute, from).alive())
	assert.False(t, termFrom(t, time.Minute, boottime.Moment{Mono: from.Mono.Add(-time.Minute), Boot: from.Boot}).alive())
	assert.False(t, termFrom(t, time.Minute, boottime.Moment{Mono: from.Mono, Boot: from.Boot - time.Minute}).alive(), "the machine was suspended")
}

func TestAContextMadeFromTheLeadersEndsWithItsClock(t *testing.T) {
	t.Parallel()
	v := termFrom(t, time.Minute, boottime.Present())
	child, cancel := context.WithCancel(v.ctx)
	defer cancel()
	v.until.Set(boottime.Moment{Mono: time.Now().Add(time.Minute), Boot: boottime.Now()}) // no timer has run
	assert.NoError(t, child.Err(), "it has no clock of its own")
	assert.Error(t, v.ctx.Err())
	assert.Error(t, child.Err())
	assert.ErrorIs(t, context.Cause(child), renew.ErrExpired)
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
		v.until.Set(boottime.Moment{Mono: time.Now().Add(time.Hour), Boot: boottime.Now() - 1}) // only one clock ran on
		assert.ErrorIs(t, ctx.Err(), context.Canceled)
		assert.ErrorIs(t, context.Cause(ctx), ErrLost)
		assert.False(t, e.IsLeader())
		return nil
	}))
}
