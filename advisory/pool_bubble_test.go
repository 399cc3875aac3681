package advisory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

func TestANestedRequestOnAFullPoolFailsAtOnceAndNamesTheOuterLocks(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		a := w.open(advisory.Config{MaxConns: 2})
		one := w.acquire(a, 1)
		two, err := a.Acquire(one.Context(), entity(2))
		require.NoError(w, err)
		start := time.Now()
		for _, call := range []func() (*advisory.Lock, error){
			func() (*advisory.Lock, error) { return a.Acquire(two.Context(), entity(3)) },
			func() (*advisory.Lock, error) { return a.TryAcquire(two.Context(), entity(3)) },
			func() (*advisory.Lock, error) { return a.AcquireAll(two.Context(), entity(3), entity(4)) },
			func() (*advisory.Lock, error) { return a.AcquireSlot(two.Context(), entity(3), 1) },
		} {
			_, err := call()
			require.ErrorIs(w, err, advisory.ErrPoolExhausted)
			require.NotErrorIs(w, err, advisory.ErrHeld)
			require.NotErrorIs(w, err, advisory.ErrTimeout)
			e, ok := errors.AsType[*advisory.PoolExhaustedError](err)
			require.True(w, ok)
			assert.ElementsMatch(w, []namespace.Key{entity(1), entity(2)}, e.Outer)
			assert.Equal(w, 2, e.MaxConns)
		}
		assert.Zero(w, time.Since(start))
		w.release(two, one)
	})
}

func TestARequestOnAFullPoolWaitsForAConnection(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		a := w.open(advisory.Config{MaxConns: 1, Wait: time.Second})
		one := w.acquire(a, 1)
		start := time.Now()
		_, err := a.Acquire(w.Context(), entity(2))
		assert.Equal(w, time.Second, time.Since(start))
		require.ErrorIs(w, err, advisory.ErrPoolExhausted)
		require.ErrorIs(w, err, advisory.ErrTimeout)
		require.NotErrorIs(w, err, advisory.ErrHeld)
		e, ok := errors.AsType[*advisory.PoolExhaustedError](err)
		require.True(w, ok)
		assert.Equal(w, time.Second, e.Waited)
		assert.Empty(w, e.Outer)

		p := w.beginAcquire(w.Context(), a, 2)
		w.release(one)
		w.release(w.now(p))
	})
}

func TestOneWhoWaitsForAConnectionCanLeave(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		a := w.open(advisory.Config{MaxConns: 1})
		one := w.acquire(a, 1)
		ctx, cancel := context.WithCancelCause(w.Context())
		leaver := w.beginAcquire(ctx, a, 2)
		behind := w.beginAcquire(w.Context(), a, 2) // needs the same connection
		hurried, done := context.WithTimeout(w.Context(), time.Second)
		defer done()
		late := w.beginAcquire(hurried, a, 2)
		gone := errors.New("gone")
		cancel(gone)
		require.ErrorIs(w, (<-leaver).err, gone)
		err := (<-late).err
		require.ErrorIs(w, err, advisory.ErrPoolExhausted)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		w.assertWaits(behind)
		w.release(one)
		w.release(w.now(behind))
	})
}

func TestANestedRequestDoesNotWaitBehindOneThatWaitsForAConnection(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		a := w.open(advisory.Config{MaxConns: 1})
		one := w.acquire(a, 1)
		p := w.beginAcquire(w.Context(), a, 2)
		_, err := a.Acquire(one.Context(), entity(2))
		require.ErrorIs(w, err, advisory.ErrPoolExhausted)
		w.release(one)
		w.release(w.now(p))
	})
}

func TestManyWaitersOfOneKeyNeedOneConnection(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{MaxConns: 2}), w.open(advisory.Config{})
		lock := w.acquire(b, 1)
		var waiters []pending
		for range 20 {
			waiters = append(waiters, w.beginAcquire(w.Context(), a, 1))
		}
		assert.Equal(w, 1, a.Stats().SessionsInUse)
		w.release(w.acquire(a, 2))
		w.release(lock)
		for _, p := range waiters {
			w.release(w.now(p))
		}
	})
}

func TestAnUnavailableServerIsReportedToEverybodyWhoWaits(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		a := w.open(advisory.Config{MaxConns: 1})
		one := w.acquire(a, 1)
		first := w.beginAcquire(w.Context(), a, 2)
		second := w.beginAcquire(w.Context(), a, 2)
		w.server.SetUnavailable(errors.New("connection refused"))
		w.server.KillSessions()
		require.ErrorIs(w, one.Release(), advisory.ErrLost)
		for _, p := range []pending{first, second} {
			err := (<-p).err
			require.ErrorIs(w, err, advisory.ErrUnavailable)
			require.ErrorContains(w, err, "connection refused")
		}
		w.server.SetUnavailable(nil)
		w.release(w.acquire(a, 2))
	})
}

func TestAFullPoolDelaysNoRefusalAndNoTimeout(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		a, b := w.open(advisory.Config{MaxConns: 1}), w.open(advisory.Config{})
		lock := w.acquire(b, 1)
		first := w.beginAcquire(w.Context(), a, 1) // with the only connection
		start := time.Now()
		_, err := a.TryAcquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrHeld)
		assert.Zero(w, time.Since(start))
		_, err = a.With(advisory.Options{Wait: 5 * time.Millisecond}).Acquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrTimeout)
		assert.Equal(w, 5*time.Millisecond, time.Since(start))
		w.release(lock)
		w.release(w.now(first))
	})
}

// Both keys go back in one batch, and somebody waits for each: they may not go on with the
// one connection together.
func TestWaitersForTheKeysOfOneLockDoNotShareItsConnection(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		l, other := w.open(advisory.Config{HandOverBudget: -1}), w.open(advisory.Config{})
		both := w.now(w.beginAll(w.Context(), l, 1, 2))
		foreign := []pending{w.beginAcquire(w.Context(), other, 1), w.beginAcquire(w.Context(), other, 2)}
		p, q := w.beginAcquire(w.Context(), l, 1), w.beginAcquire(w.Context(), l, 2)
		w.release(both)
		for _, f := range foreign {
			lock := w.now(f)
			time.Sleep(2 * time.Second)
			w.release(lock)
		}
		one, two := w.granted(p), w.granted(q)
		assert.NotEqual(w, one.PID(), two.PID())
		require.True(w, w.server.Kill(one.PID()))
		<-one.Lost()
		require.ErrorIs(w, one.Release(), advisory.ErrLost)
		w.release(two)
	})
}
