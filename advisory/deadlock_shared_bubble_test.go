package advisory_test

import (
	"testing"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

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
