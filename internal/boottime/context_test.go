package boottime_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/test/bubble"
)

var errLate = errors.New("not renewed in time")

// A right ends by a Deadline, and its context with it.
type right struct {
	until  boottime.Deadline
	checks int
}

func (r *right) expired() error {
	r.checks++
	if r.until.Passed() {
		return errLate
	}
	return nil
}

// stopped lets the deadline pass without a timer, as for a process that was stopped.
func (r *right) stopped() { r.until.Set(boottime.Moment{}) }

func newRight(ctx context.Context) (*right, *boottime.Context, context.CancelCauseFunc) {
	r := &right{}
	r.until.Set(boottime.Present().Add(time.Hour))
	c, end := boottime.NewContext(ctx, r.expired)
	return r, c, end
}

func open(done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
		return true
	}
}

func TestTheFirstCheckAfterTheDeadlineFindsTheEnd(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]func(c *boottime.Context) bool{
		"Err":  func(c *boottime.Context) bool { return c.Err() != nil },
		"Done": func(c *boottime.Context) bool { return !open(c.Done()) },
	} {
		r, c, end := newRight(t.Context())
		defer end(nil)
		assert.False(t, ended(c), name)
		r.stopped()
		require.NoError(t, c.Context.Err(), "the control: nothing has checked")
		assert.True(t, ended(c), name)
		require.ErrorIs(t, c.Err(), context.Canceled)
		assert.Equal(t, errLate, context.Cause(c))
	}
}

func TestASuspensionEndsAContextByOneClock(t *testing.T) {
	t.Parallel()
	r, c, end := newRight(t.Context())
	defer end(nil)
	r.until.Set(suspended(boottime.Present().Add(time.Hour), time.Minute))
	require.NoError(t, c.Err(), "the control")
	r.until.Set(suspended(boottime.Present().Add(time.Hour), time.Hour))
	require.Error(t, c.Err())
}

func TestTheFirstCauseOfAContextStays(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	r, c, end := newRight(t.Context())
	end(enough)
	r.stopped()
	checks := r.checks
	require.ErrorIs(t, c.Err(), context.Canceled)
	assert.False(t, open(c.Done()))
	assert.Equal(t, enough, context.Cause(c))
	assert.Equal(t, checks, r.checks, "it has ended: the clock says nothing new")

	parent, cancel := context.WithCancelCause(t.Context())
	r, c, end = newRight(parent)
	defer end(nil)
	cancel(enough)
	r.stopped()
	require.ErrorIs(t, c.Err(), context.Canceled)
	assert.Equal(t, enough, context.Cause(c))
}

func TestExpiredMayEndTheContextItself(t *testing.T) {
	t.Parallel()
	reported := errors.New("reported")
	var end context.CancelCauseFunc
	c, end := boottime.NewContext(t.Context(), func() error {
		end(reported)
		return errLate
	})
	require.Error(t, c.Err())
	assert.Equal(t, reported, context.Cause(c))
}

func TestADerivedContextEndsWithTheOneThatChecks(t *testing.T) {
	t.Parallel()
	r, c, end := newRight(t.Context())
	defer end(nil)
	derived, cancel := context.WithTimeout(c, time.Hour)
	defer cancel()
	ran := make(chan struct{})
	defer context.AfterFunc(c, func() { close(ran) })()
	r.stopped()
	require.NoError(t, derived.Err(), "it has no clock of its own")
	assert.True(t, open(derived.Done()))

	require.Error(t, context.WithValue(c, key{}, "other").Err(), "this one is the same but for its value")
	require.ErrorIs(t, derived.Err(), context.Canceled, "its own deadline has not passed")
	assert.Equal(t, errLate, context.Cause(derived))
	<-ran
	late, cancel := context.WithCancel(c)
	defer cancel()
	require.Error(t, late.Err())
}

func TestMakingADerivedContextChecks(t *testing.T) {
	t.Parallel()
	r, c, end := newRight(t.Context())
	defer end(nil)
	r.stopped()
	derived, cancel := context.WithCancel(c)
	defer cancel()
	require.Error(t, derived.Err())
	assert.Equal(t, errLate, context.Cause(derived))
}

type key struct{}

func TestAContextHasTheValuesAndTheDeadlineOfItsParent(t *testing.T) {
	t.Parallel()
	end := time.Now().Add(time.Hour)
	parent, cancel := context.WithDeadline(context.WithValue(t.Context(), key{}, "value"), end)
	defer cancel()
	_, c, stop := newRight(parent)
	defer stop(nil)
	assert.Equal(t, "value", c.Value(key{}))
	deadline, ok := c.Deadline()
	assert.True(t, ok)
	assert.Equal(t, end, deadline)
}

// A hostile parent is a context of the program: whatever it is asked, it wants to know whether the
// work's context has ended, and where that is known.
type hostile struct {
	context.Context

	look func()
}

func (h *hostile) Value(k any) any {
	h.look()
	return h.Context.Value(k)
}

func (h *hostile) Done() <-chan struct{} {
	h.look()
	return h.Context.Done()
}

func TestAParentMayCheckTheContextThatIsMadeFromIt(t *testing.T) {
	t.Parallel()
	for _, act := range []func(r *right, c *boottime.Context, end context.CancelCauseFunc){
		func(_ *right, _ *boottime.Context, end context.CancelCauseFunc) { end(nil) },
		func(r *right, c *boottime.Context, _ context.CancelCauseFunc) { r.stopped(); _ = c.Err() },
		func(r *right, c *boottime.Context, _ context.CancelCauseFunc) { r.stopped(); _ = c.Done() },
		func(_ *right, c *boottime.Context, _ context.CancelCauseFunc) {
			_, cancel := context.WithCancel(c)
			cancel()
		},
	} {
		parent, cancel := context.WithCancel(t.Context())
		var c *boottime.Context
		looks := 0
		r, c, end := newRight(&hostile{parent, func() {
			if looks++; c != nil {
				_ = c.Err()
			}
		}})
		act(r, c, end)
		cancel()
		assert.Positive(t, looks)
		require.Error(t, c.Err())
	}
}

// suspended is m as it is after a suspension of d: only one clock ran on.
func suspended(m boottime.Moment, d time.Duration) boottime.Moment {
	return boottime.Moment{Mono: m.Mono, Boot: m.Boot - d}
}

func TestTheFirstClockThatReachesAMomentEndsIt(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	end := boottime.Present().Add(hour)
	assert.False(t, end.Passed(), "the control")
	assert.Greater(t, end.Until(), hour/2)
	assert.Less(t, end.Since(), -hour/2)
	for name, m := range map[string]boottime.Moment{
		"the machine was suspended": suspended(end, hour),
		"the clock of package time": {Mono: end.Mono.Add(-hour), Boot: end.Boot},
	} {
		assert.True(t, m.Passed(), name)
		assert.LessOrEqual(t, m.Until(), time.Duration(0), name)
		assert.GreaterOrEqual(t, m.Since(), time.Duration(0), name)
	}
}

func TestTheTimeBetweenTwoMomentsCountsASuspension(t *testing.T) {
	t.Parallel()
	now := boottime.Present()
	assert.Equal(t, time.Minute, now.Add(time.Minute).Sub(now))
	assert.Equal(t, -time.Minute, now.Sub(now.Add(time.Minute)))
	assert.Equal(t, time.Hour, now.Sub(suspended(now, time.Hour)))
	assert.GreaterOrEqual(t, suspended(now, time.Hour).Since(), time.Hour)
}

func TestAMomentPassesInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := boottime.Present().Add(time.Minute)
		bubble.Sleep(time.Minute - 1)
		assert.False(t, end.Passed())
		bubble.Sleep(time.Nanosecond)
		assert.True(t, end.Passed())
		assert.Equal(t, time.Duration(0), end.Until())
		bubble.Sleep(time.Minute)
		assert.Equal(t, time.Minute, end.Since())
	})
}

func TestTheZeroMomentIsLongPast(t *testing.T) {
	t.Parallel()
	for _, m := range []boottime.Moment{{}, boottime.Moment{}.Add(time.Hour)} {
		assert.True(t, m.Passed())
		assert.Less(t, m.Until(), -time.Hour)
		assert.Greater(t, m.Since(), time.Hour)
	}
}

func TestADeadlineThatWasFoundPassedStaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d boottime.Deadline
		assert.True(t, d.Passed(), "before it was set")
		assert.Negative(t, d.Left())
		assert.False(t, d.Extend(boottime.Present().Add(time.Second)))

		d.Set(boottime.Present().Add(time.Second))
		assert.False(t, d.Passed())
		bubble.Sleep(time.Second / 2)
		assert.InDelta(t, time.Second/2, d.Left(), float64(time.Second/2-1))
		assert.True(t, d.Extend(boottime.Present().Add(time.Second)))
		assert.True(t, d.Extend(boottime.Present()), "an earlier moment does not shorten it")
		bubble.Sleep(time.Second - 1)
		assert.False(t, d.Passed())
		bubble.Sleep(time.Nanosecond)
		assert.False(t, d.Extend(boottime.Present().Add(time.Second)), "too late")
		assert.True(t, d.Passed())
		d.Set(boottime.Present().Add(time.Second))
		assert.False(t, d.Passed())
	})
}
