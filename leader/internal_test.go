package leader

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/internal/test/configdoc"
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

// The machine is suspended during the attempt that won: the keeper begins when the lease
// has ended by one clock. It does not wait for the next renewal to notice.
func TestALeaseThatEndedInASuspensionIsLostAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, suspended := range map[string]time.Duration{"suspended": time.Hour, "control": 0} {
			e, err := New(Config{Name: "scheduler", Backend: &electedOnce{}, LeaseDuration: time.Hour})
			require.NoError(t, err)
			from := boottime.Present()
			from.Boot -= suspended
			v := e.newTerm(&lifecycle{ctx: t.Context()}, from)
			synctest.Wait() // no time passes
			select {
			case err := <-v.loss:
				assert.Equal(t, "suspended", name)
				assert.ErrorIs(t, err, renew.ErrExpired)
				assert.ErrorIs(t, context.Cause(v.ctx.Context), ErrLost)
			default:
				assert.Equal(t, "control", name)
			}
			v.close()
		}
	})
}

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	config, _ := Config{}.withDefaults() // Name and Backend are missing
	configdoc.Check(t, config)
}

// SetBusyFor makes the lifecycle goroutine look busy for d, on a clock that no
// bubble moves; 0 = it waits.
func (e *Elector) SetBusyFor(d time.Duration) {
	if d == 0 {
		e.busy.Store(0)
		return
	}
	e.busy.Store(int64(boottime.Now() - d))
}

// Busy reports whether the lifecycle goroutine is busy.
func (e *Elector) Busy() bool { return e.busy.Load() != 0 }

// Distrust ends the lease of the current leadership before any timer knows it, as
// it happens to a process that was stopped.
func (e *Elector) Distrust() { e.current.Load().until.Set(boottime.Moment{}) }

// Hurry has the Elector make the next attempt at once, however early its last term ended.
func (e *Elector) Hurry() { e.comeback = renew.Comeback{} }
