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

// assertCycle checks a refused wait and the cycle that it names.
func assertCycle(w *world, err error, want ...namespace.Key) {
	w.Helper()
	require.ErrorIs(w, err, advisory.ErrDeadlock)
	e, ok := errors.AsType[*advisory.DeadlockError](err)
	require.True(w, ok)
	assert.Equal(w, want, e.Cycle)
}

func TestACycleOfTwoIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		one, two := w.acquire(a, 1), w.acquire(a, 2)
		p := w.beginAcquire(one.Context(), a, 2)
		start := time.Now()
		_, err := a.Acquire(two.Context(), entity(1))
		assert.Zero(w, time.Since(start))
		assertCycle(w, err, entity(1), entity(2))
		w.release(two) // which is held still
		w.release(w.now(p), one)
	})
}

func TestACycleOfThreeIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		one, two, three := w.acquire(a, 1), w.acquire(a, 2), w.acquire(a, 3)
		first := w.beginAcquire(one.Context(), a, 2)
		second := w.beginAcquire(two.Context(), a, 3)
		_, err := a.Acquire(three.Context(), entity(1))
		assertCycle(w, err, entity(1), entity(2), entity(3))
		w.release(three)
		w.release(w.now(second), two)
		w.release(w.now(first), one)
	})
}

func TestAChainWithoutACycleWaits(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		one, two, three := w.acquire(a, 1), w.acquire(a, 2), w.acquire(a, 3)
		first := w.beginAcquire(one.Context(), a, 2)
		second := w.beginAcquire(two.Context(), a, 3)
		third := w.beginAcquire(w.Context(), a, 1)
		w.release(three)
		w.release(w.now(second), two)
		w.release(w.now(first), one)
		w.release(w.now(third))
	})
}

func TestAWaiterThatLeftClosesNoCycle(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		one, two := w.acquire(a, 1), w.acquire(a, 2)
		ctx, cancel := context.WithCancel(one.Context())
		left := w.beginAcquire(ctx, a, 2)
		cancel()
		require.ErrorIs(w, (<-left).err, context.Canceled)
		p := w.beginAcquire(two.Context(), a, 1)
		w.release(one)
		w.release(w.now(p), two)
	})
}

func TestACycleOfAcquireAllAndANestedRequestIsRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		two := w.acquire(a, 2)
		all := w.begin(func() (*advisory.Lock, error) { return a.AcquireAll(w.Context(), entity(2), entity(1)) })
		w.assertWaits(all) // it has entity 1 and waits for 2
		_, err := a.Acquire(two.Context(), entity(1))
		assertCycle(w, err, entity(1), entity(2))
		w.release(two)
		w.release(w.now(all))
	})
}

func TestAnAcquireAllThatWouldCloseACycleGivesEverythingBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		one := w.acquire(a, 1)
		three := w.acquire(a, 3)
		p := w.beginAcquire(one.Context(), a, 3)
		_, err := a.AcquireAll(three.Context(), entity(2), entity(1))
		assertCycle(w, err, entity(1), entity(3))
		w.release(three)
		w.release(w.now(p), w.acquire(a, 2), one)
	})
}

func TestTwoAcquireAllInAnyOrderNeverDeadlock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		lockers := []*advisory.Locker{w.open(advisory.Config{}), w.open(advisory.Config{})}
		done := make(chan error)
		for i := range 8 {
			go func() {
				keys := []namespace.Key{entity(1), entity(2), entity(3)}
				if i%4 < 2 {
					keys[0], keys[2] = keys[2], keys[0]
				}
				lock, err := lockers[i%2].AcquireAll(w.Context(), keys...)
				if err == nil {
					time.Sleep(time.Millisecond)
					err = lock.Release()
				}
				done <- err
			}()
		}
		for range 8 {
			require.NoError(w, <-done)
		}
	})
}

func TestACycleThroughAnotherProcessEndsInATimeout(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{Wait: time.Second}), w.open(advisory.Config{})
		one, two := w.acquire(a, 1), w.acquire(b, 2)
		p := w.beginAcquire(one.Context(), a, 2)
		q := w.beginAcquire(two.Context(), b, 1)
		require.ErrorIs(w, (<-p).err, advisory.ErrTimeout)
		w.release(one)
		w.release(w.now(q), two)
	})
}

// noHandOver has every request ask the server, readers of a key that is held among
// them.
var noHandOver = advisory.Config{HandOverBudget: -1}

// stopTriesOf has tries of entity i stop on their way to the server, until the result
// is called.
func (f *faulty) stopTriesOf(i int64) (goOn func()) {
	stopped := make(chan struct{})
	f.onTry = func(tag namespace.Tag) error {
		if tag == entity(i).Tag() {
			<-stopped
		}
		return nil
	}
	return func() { close(stopped) }
}

func TestAReaderWhoseTryIsOnItsWayClosesNoCycle(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f := w.openFaulty(noHandOver)
		one, two := w.acquire(a, 1), w.acquire(a.With(shared), 2)
		goOn := f.stopTriesOf(2)
		reader := w.beginAcquire(one.Context(), a.With(shared), 2)
		w.assertWaits(reader)
		p := w.beginAcquire(two.Context(), a, 1)
		w.assertWaits(p)
		goOn()
		w.release(w.now(reader), one)
		w.release(w.now(p), two)
	})
}

func TestAReaderBehindOneThatItDoesNotConflictWithClosesNoCycle(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f := w.openFaulty(noHandOver)
		one, two := w.acquire(a, 1), w.acquire(a.With(shared), 2)
		p := w.beginAcquire(two.Context(), a, 1)
		goOn := f.stopTriesOf(2)
		first := w.beginAcquire(w.Context(), a.With(shared), 2)
		second := w.beginAcquire(one.Context(), a.With(shared), 2) // the holder of 2 waits for 1
		w.assertWaits(second)
		goOn()
		w.release(w.now(first), w.now(second), one)
		w.release(w.now(p), two)
	})
}

func TestReadersThatUpgradeAcrossTwoKeysAreADeadlock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		one, two := w.acquire(a.With(shared), 1), w.acquire(a.With(shared), 2)
		p := w.beginAcquire(one.Context(), a, 2)
		_, err := a.Acquire(two.Context(), entity(1))
		assertCycle(w, err, entity(1), entity(2))
		w.release(two)
		w.release(w.now(p), one)
	})
}

func TestEveryReaderOfAKeyIsInTheWayOfAWriter(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		readers := []*advisory.Lock{w.acquire(a.With(shared), 1), w.acquire(a.With(shared), 1)}
		two := w.acquire(a, 2)
		p := w.beginAcquire(readers[1].Context(), a, 2)
		_, err := a.Acquire(two.Context(), entity(1))
		assertCycle(w, err, entity(1), entity(2))
		w.release(readers[0], two)
		w.release(w.now(p), readers[1])
	})
}

func TestAReaderBehindAWriterThatWaitsForAnotherReaderIsADeadlock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		one, two := w.acquire(a, 1), w.acquire(a.With(shared), 2)
		reader := w.beginAcquire(two.Context(), a, 1)
		writer := w.beginAcquire(w.Context(), a, 2)
		_, err := a.With(shared).Acquire(one.Context(), entity(2))
		assertCycle(w, err, entity(2), entity(1))
		w.release(one)
		w.release(w.now(reader), two)
		w.release(w.now(writer))
	})
}

func TestACycleThatIsClosedLaterIsFound(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f := w.openFaulty(noHandOver)
		one, two, three := w.acquire(a, 1), w.acquire(a.With(shared), 2), w.acquire(a, 3)
		goOn := f.stopTriesOf(2)
		reader := w.beginAcquire(one.Context(), a.With(shared), 2)
		second := w.beginAcquire(two.Context(), a, 3)
		third := w.beginAcquire(three.Context(), a, 1)
		w.assertWaits(third) // for one that waits for nobody yet
		goOn()
		w.release(w.now(reader))
		_, err := a.Acquire(one.Context(), entity(2))
		assertCycle(w, err, entity(2), entity(3), entity(1))
		w.release(one)
		w.release(w.now(third), three)
		w.release(w.now(second), two)
	})
}

func TestAnAcquireAllOfReadersClosesNoCycleWithAReader(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f := w.openFaulty(noHandOver)
		two := w.acquire(a.With(shared), 2)
		goOn := f.stopTriesOf(2)
		all := w.begin(func() (*advisory.Lock, error) {
			return a.With(shared).AcquireAll(w.Context(), entity(1), entity(2))
		})
		w.assertWaits(all) // it has entity 1
		writer := w.beginAcquire(two.Context(), a, 1)
		w.assertWaits(writer)
		goOn()
		w.release(w.now(all))
		w.release(w.now(writer), two)
	})
}

func TestAnAcquireAllOfReadersBehindAWriterIsADeadlock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		two := w.acquire(a.With(shared), 2)
		writer := w.beginAcquire(w.Context(), a, 2)
		all := w.begin(func() (*advisory.Lock, error) {
			return a.With(shared).AcquireAll(w.Context(), entity(1), entity(2))
		})
		w.assertWaits(all) // it has entity 1, and is behind the writer
		_, err := a.Acquire(two.Context(), entity(1))
		assertCycle(w, err, entity(1), entity(2))
		w.release(two)
		w.release(w.now(writer))
		w.release(w.now(all))
	})
}
