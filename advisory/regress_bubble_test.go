package advisory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
)

func TestATryWhosePooledSessionHadDiedStillWaitsForNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		w.release(w.acquire(a, 2)) // leaves a session in the pool
		w.server.KillSessions()
		foreign := w.acquire(b, 1)
		start := time.Now()
		ran, err := a.DoOrSkip(w.Context(), entity(1), nothing)
		require.NoError(w, err)
		assert.False(w, ran)
		assert.Zero(w, time.Since(start))
		w.release(foreign)
	})
}

func TestACauseThatLooksLikeAHeldLockIsNoSkip(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		ctx, cancel := context.WithCancelCause(w.Context())
		cancel(&advisory.HeldError{Key: entity(9)}) // as an errgroup's first error does
		ran, err := a.DoOrSkip(ctx, entity(1), nothing)
		assert.False(w, ran)
		require.Error(w, err)
	})
}

// panicker is a tracer that panics at everything.
func panicker() advisory.Tracer {
	return advisory.Tracer{
		Acquire: func(context.Context, advisory.AcquireData) { panic("acquire") },
		Wait:    func(context.Context, advisory.WaitData) { panic("wait") },
		Release: func(context.Context, advisory.ReleaseData) { panic("release") },
		Loss:    func(context.Context, advisory.LossData) { panic("loss") },
	}
}

func TestATracerThatPanicsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{Tracer: panicker()})
		first := w.acquire(a, 1)
		p := w.beginAcquire(w.Context(), a, 1)
		w.assertWaits(p)
		w.release(first)
		w.release(w.now(p))
		lost := w.acquire(a, 1)
		w.server.KillSessions()
		<-lost.Lost()
		require.ErrorIs(w, lost.Release(), advisory.ErrLost)
	})
}

func TestAContextAskedForAfterTheReleaseHasEnded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		lock := w.acquire(w.open(advisory.Config{}), 1)
		w.release(lock)
		require.ErrorIs(w, context.Cause(lock.Context()), advisory.ErrReleased)
	})
}

func TestAReaderThatOthersOutlastLearnsOfTheLoss(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f := w.openFaulty(advisory.Config{})
		one, two := w.acquire(a.With(shared), 1), w.acquire(a.With(shared), 1)
		f.set(session.Lost)
		require.ErrorIs(w, one.Release(), advisory.ErrLost)
		require.ErrorIs(w, two.Release(), advisory.ErrLost)
	})
}

func TestAnAcquireAllWhoseSessionDiesWhileItWaitsIsToldAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		blocker := w.acquire(a, 2)
		defer w.fill(a)()
		done := make(chan error, 1)
		go func() {
			_, err := a.AcquireAll(w.Context(), entity(1), entity(2))
			done <- err
		}()
		synctest.Wait()
		start := time.Now()
		w.server.Kill(w.pidOf(1))
		require.ErrorIs(w, <-done, advisory.ErrUnavailable)
		assert.Less(w, time.Since(start), time.Second)
		w.release(blocker)
		w.release(w.acquire(a, 1))
	})
}
