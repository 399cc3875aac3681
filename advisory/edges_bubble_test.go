package advisory_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

// A server without room for a lock has none for a login.
func TestAWaitThatGetsNoConnectionBecauseTheLockTableIsFullSaysSo(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		other := w.open(advisory.Config{})
		l, f := w.openFaulty(advisory.Config{Wait: time.Minute})
		foreign, mine := w.acquire(other, 1), w.acquire(l, 2)
		synctest.Wait()
		start := time.Now()
		var full atomic.Bool
		full.Store(true)
		f.onAcquire = func() error {
			if full.Load() {
				return advisory.ErrLockTableFull
			}
			return nil
		}
		_, err := l.Acquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrLockTableFull)
		require.NotErrorIs(w, err, advisory.ErrTimeout)
		assert.Less(w, time.Since(start), time.Second)
		full.Store(false)
		time.Sleep(2 * time.Second)
		p := w.beginAcquire(w.Context(), l, 1)
		w.release(foreign)
		w.release(w.granted(p), mine)
	})
}

func TestAnErrorThatNamesNoHolderSaysWhy(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		other := w.open(advisory.Config{})
		l, f := w.openFaulty(advisory.Config{})
		short := l.With(advisory.Options{Wait: time.Second})
		foreign := w.acquire(other, 1)
		for _, slow := range []time.Duration{0, time.Second} { // the first is the control
			f.slowHolders.Store(int64(slow))
			_, timeout := short.Acquire(w.Context(), entity(1))
			require.ErrorIs(w, timeout, advisory.ErrTimeout)
			_, held := l.TryAcquire(w.Context(), entity(1))
			require.ErrorIs(w, held, advisory.ErrHeld)
			for _, err := range []error{timeout, held} {
				if slow == 0 {
					assert.Contains(w, err.Error(), "by backend")
					assert.NotContains(w, err.Error(), "not known")
				} else {
					assert.Contains(w, err.Error(), "its holder is unknown: the server did not answer within 250ms")
				}
			}
		}
		time.Sleep(time.Minute)
		w.release(foreign)
	})
}

func TestAnErrorWithoutAConnectionToAskWithSaysSo(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		other, l := w.open(advisory.Config{}), w.open(advisory.Config{MaxConns: 2})
		foreign := w.acquire(other, 1)
		wait := w.beginAcquire(w.Context(), l, 1) // on one connection
		mine := w.acquire(l, 2)                   // on the other
		_, err := l.With(advisory.Options{Wait: time.Second}).Acquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrTimeout)
		assert.Contains(w, err.Error(), "its holder is unknown: no connection of the lock pool was free to ask")
		w.release(foreign)
		w.release(w.granted(wait), mine)
	})
}

func TestTheZeroLockerIsClosedAndTheZeroLockReleased(t *testing.T) {
	t.Parallel()
	var l advisory.Locker
	semaphore := namespace.Must(1, "agent").ID(1)
	for name, call := range map[string]func(l *advisory.Locker) error{
		"Acquire":     func(l *advisory.Locker) error { _, err := l.Acquire(t.Context(), semaphore); return err },
		"TryAcquire":  func(l *advisory.Locker) error { _, err := l.TryAcquire(t.Context(), semaphore); return err },
		"AcquireAll":  func(l *advisory.Locker) error { _, err := l.AcquireAll(t.Context(), semaphore, entity(2)); return err },
		"AcquireSlot": func(l *advisory.Locker) error { _, err := l.AcquireSlot(t.Context(), semaphore, 2); return err },
		"Do":          func(l *advisory.Locker) error { return l.Do(t.Context(), semaphore, nothing) },
		"DoOrSkip":    func(l *advisory.Locker) error { _, err := l.DoOrSkip(t.Context(), semaphore, nothing); return err },
	} {
		for _, l := range []*advisory.Locker{&l, l.With(advisory.Options{Label: "a copy"})} {
			require.ErrorIs(t, call(l), advisory.ErrClosed, name)
		}
	}
	assert.Zero(t, l.Stats())
	assert.Empty(t, held(&l))
	l.Close()

	var lock advisory.Lock
	require.ErrorIs(t, lock.Release(), advisory.ErrReleased)
	require.ErrorIs(t, context.Cause(lock.Context()), advisory.ErrReleased)
	assert.Empty(t, lock.Lost())
	assert.Empty(t, lock.Asked())
	assert.False(t, lock.Key().Valid())
	assert.Empty(t, lock.Keys())
	assert.Zero(t, lock.PID())
	assert.False(t, lock.Shared())
}
