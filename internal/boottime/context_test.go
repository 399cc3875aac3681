package boottime_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/boottime"
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
