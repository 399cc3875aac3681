package advisory_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
)

func TestAKeyThatAnotherLockerOfTheProcessHoldsIsReentrant(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.openTogether(advisory.Config{}), w.openTogether(advisory.Config{})
		outer := w.acquire(a, 1)
		ctx := w.acquireIn(outer.Context(), b, 2).Context() // the key is two locks away
		start := time.Now()
		for name, call := range map[string]func() error{
			"Acquire":    func() error { _, err := b.Acquire(ctx, entity(1)); return err },
			"shared":     func() error { _, err := b.With(shared).Acquire(ctx, entity(1)); return err },
			"TryAcquire": func() error { _, err := b.TryAcquire(ctx, entity(1)); return err },
			"AcquireAll": func() error { _, err := b.AcquireAll(ctx, entity(0), entity(1)); return err },
		} {
			e, ok := errors.AsType[*advisory.ReentrantError](call())
			require.True(w, ok, name)
			assert.Equal(w, entity(1), e.Held, name)
		}
		ran, err := b.DoOrSkip(ctx, entity(1), nothing)
		require.NoError(w, err)
		assert.False(w, ran)
		assert.Equal(w, int64(1), b.Stats().ReentrantSkips)
		assert.Zero(w, time.Since(start))
		assert.Zero(w, b.WaitsAbroad())

		slot, err := a.AcquireSlot(ctx, entity(3), 2)
		require.NoError(w, err)
		_, err = b.AcquireSlot(slot.Context(), entity(3), 2)
		require.ErrorIs(w, err, advisory.ErrReentrant)
		w.release(slot, w.acquireIn(slot.Context(), b, 3)) // the semaphore and the mutex on its key are two things

		w.release(outer)
		w.release(w.acquireIn(context.WithoutCancel(ctx), b, 1))
		for h := range b.Held() {
			assert.Equal(w, entity(2), h.Keys[0])
		}
	})
}

// A control: Lockers that do not know that they are in one process wait for each other.
func TestAKeyOfALockerElsewhereIsHeld(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{Wait: time.Second})
		outer := w.acquire(a, 1)
		_, err := b.Acquire(outer.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrTimeout)
		require.NotErrorIs(w, err, advisory.ErrReentrant)
		w.release(outer)
	})
}

func TestACircleThroughLockersOfOneProcessIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.openTogether(advisory.Config{}), w.openTogether(advisory.Config{})
		one, two := w.acquire(a, 1), w.acquire(b, 2)
		p := w.beginAcquire(one.Context(), a, 2)
		start := time.Now()
		_, err := b.Acquire(two.Context(), entity(1))
		assert.Zero(w, time.Since(start))
		assertCycle(w, err, entity(1), entity(2))
		w.release(two)
		w.release(w.granted(p), one)

		// Each asks the Locker that the other holds with, one of them for several keys.
		one, two = w.acquire(a, 1), w.acquire(b, 2)
		all := w.begin(func() (*advisory.Lock, error) { return b.AcquireAll(two.Context(), entity(0), entity(1)) })
		three := w.beginAcquire(w.acquireIn(w.Context(), a, 3).Context(), b, 0) // waits for the part that it has
		_, err = a.Acquire(one.Context(), entity(2))
		assertCycle(w, err, entity(2), entity(1))
		assert.Positive(w, a.WaitsAbroad())
		w.release(one)
		w.release(w.granted(all), two)
		w.release(w.granted(three))
		for h := range a.Held() {
			assert.Equal(w, entity(3), h.Keys[0])
		}
	})
}

func TestAWaitBehindAnotherLockerThatIsNoCircleGoesOn(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.openTogether(advisory.Config{}), w.openTogether(advisory.Config{})
		one, two := w.acquire(a, 1), w.acquire(b, 2)
		chain := w.beginAcquire(one.Context(), b, 2)
		last := w.beginAcquire(w.acquireIn(w.Context(), b, 3).Context(), a, 1)
		ctx, cancel := context.WithCancel(two.Context())
		w.release(w.acquireIn(ctx, a, 4))
		cancel()
		w.assertWaits(chain)
		w.assertWaits(last)
		w.release(two)
		w.release(w.granted(chain), one)
		w.release(w.granted(last))
		reader := w.acquireIn(w.Context(), a.With(shared), 5)
		w.release(w.acquireIn(reader.Context(), b, 6), w.acquireIn(w.Context(), b.With(shared), 5), reader)
		for h := range b.Held() {
			assert.Equal(w, entity(3), h.Keys[0])
		}
		synctest.Wait()
		assert.Zero(w, a.WaitsAbroad())
	})
}

func TestNothingIsKnownOfLockersThatAreClosed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.openTogether(advisory.Config{}), w.openTogether(advisory.Config{})
		outer := w.acquire(a, 1)
		taken := w.acquire(a, 2)
		p := w.beginAcquire(context.WithoutCancel(outer.Context()), b, 2)
		assert.Equal(w, 1, b.WaitsAbroad())
		require.True(w, w.known())
		a.Close()
		w.release(w.granted(p))
		assert.Zero(w, b.WaitsAbroad())
		require.ErrorIs(w, outer.Release(), advisory.ErrLost)
		require.ErrorIs(w, taken.Release(), advisory.ErrLost)
		lost := context.WithoutCancel(outer.Context())
		w.release(w.acquireIn(lost, b, 1))
		b.Close()
		assert.False(w, w.known(), "the database is known without a Locker")
	})
}

// known reports whether this process knows of a Locker on the world's server.
func (w *world) known() bool {
	return slices.Contains(advisory.Databases(), w.database())
}

// acquireIn is acquire within a context; the lock is released at the end of the test, unless it was.
func (w *world) acquireIn(ctx context.Context, l *advisory.Locker, i int64) *advisory.Lock {
	w.Helper()
	lock, err := l.Acquire(ctx, entity(i))
	require.NoError(w, err)
	w.Cleanup(func() { _ = lock.Release() })
	return lock
}
