package advisory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
)

func TestReadersShareOneServerLock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		readers := a.With(shared)
		one, two := w.acquire(readers, 1), w.acquire(readers, 1)
		assert.Len(w, w.server.Holders(entity(1)), 1)
		assert.Equal(w, 1, a.Stats().SessionsInUse)
		assert.Equal(w, 2, a.Stats().Held)
		other := w.acquire(b.With(shared), 1)
		w.release(one)
		_, err := b.TryAcquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrHeld)
		w.release(two, other)
		w.release(w.acquire(b, 1))
	})
}

func TestReadersJoinWithinTheBudgetOnly(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		readers := a.With(shared)
		first := w.acquire(readers, 1)
		writer := w.beginAcquire(w.Context(), b, 1)
		time.Sleep(9 * time.Millisecond)
		second := w.now(w.beginAcquire(w.Context(), readers, 1))
		time.Sleep(time.Millisecond)
		third := w.beginAcquire(w.Context(), readers, 1)
		w.assertWaits(third)
		w.release(first, second)
		lock := w.now(writer)
		w.assertWaits(third)
		w.release(lock)
		w.release(w.now(third))
	})
}

func TestWithoutAWriterAReaderBeyondTheBudgetWaitsForNobody(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		readers := w.open(advisory.Config{}).With(shared)
		first := w.acquire(readers, 1)
		time.Sleep(time.Second)
		second := w.now(w.beginAcquire(w.Context(), readers, 1))
		assert.Len(w, w.server.Holders(entity(1)), 1, "it has that of the other")
		w.release(first, second)
	})
}

func TestAWriterIsNotStarvedByReaders(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"this process", "another process"} {
		t.Run("of "+where, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
				writers := a
				if where != "this process" {
					writers = b
				}
				ctx, stop := context.WithCancel(w.Context())
				for i := range 5 { // at any time some of them hold the lock
					go func() {
						time.Sleep(time.Duration(i) * time.Millisecond)
						for ctx.Err() == nil {
							assert.NoError(w, a.With(shared).Do(w.Context(), entity(1), func(context.Context) error {
								time.Sleep(5 * time.Millisecond)
								return nil
							}))
						}
					}()
				}
				time.Sleep(100 * time.Millisecond)
				start := time.Now()
				for range 3 {
					w.release(w.acquire(writers, 1))
				}
				assert.Less(w, time.Since(start), 100*time.Millisecond)
				stop()
				time.Sleep(100 * time.Millisecond)
			})
		})
	}
}

func TestReadersBehindAWriterAreServedTogether(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		writer := w.acquire(a, 1)
		one := w.beginAcquire(w.Context(), a.With(shared), 1)
		two := w.beginAcquire(w.Context(), a.With(shared), 1)
		next := w.beginAcquire(w.Context(), a, 1)
		behind := w.beginAcquire(w.Context(), a.With(shared), 1)
		w.release(writer)
		first, second := w.now(one), w.now(two)
		w.assertWaits(next)
		w.assertWaits(behind)
		w.release(first, second)
		w.release(w.now(next))
		w.release(w.now(behind))
	})
}

func TestAWriterThatGivesUpLetsTheReadersBehindItThrough(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		reader := w.acquire(a.With(shared), 1)
		ctx, cancel := context.WithCancel(w.Context())
		writer := w.beginAcquire(ctx, a, 1)
		behind := w.beginAcquire(w.Context(), a.With(shared), 1)
		w.assertWaits(behind)
		cancel()
		require.ErrorIs(w, (<-writer).err, context.Canceled)
		w.release(reader, w.now(behind))
		synctest.Wait()
	})
}

func TestAReaderBehindAWriterThatGivesUpIsServedAtOnceBesideAnotherProcess(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		foreign := w.acquire(b.With(shared), 1)
		ctx, cancel := context.WithCancel(w.Context())
		writer := w.beginAcquire(ctx, a, 1)
		behind := w.beginAcquire(w.Context(), a.With(shared), 1)
		start := time.Now()
		cancel()
		require.ErrorIs(w, (<-writer).err, context.Canceled)
		o := <-behind
		require.NoError(w, o.err)
		assert.Equal(w, start, o.at)
		w.release(o.lock, foreign)
	})
}
