package advisory_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
)

func TestReadersThatComeOneByOneNeedOneConnection(t *testing.T) {
	t.Parallel()
	for _, budget := range []time.Duration{0, -1} {
		inBubble(t, func(w *world) {
			l := w.open(advisory.Config{MaxConns: 1, HandOverBudget: budget})
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 11 * time.Millisecond) // longer than the budget
					ran, err := l.With(shared).DoOrSkip(w.Context(), entity(1), func(context.Context) error {
						time.Sleep(time.Second)
						return nil
					})
					assert.NoError(w, err)
					assert.True(w, ran)
				})
			}
			time.Sleep(500 * time.Millisecond)
			assert.Len(w, w.server.Holders(entity(1)), 1)
			assert.Equal(w, 20, l.Stats().Held)
			wg.Wait()
		})
	}
}

// Each reader holds the key for longer than a wait step, and some reader holds it at any moment.
func TestAWriterGetsItsTurnAmongReadersOfOtherProcessesThatNeverPause(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		const hold = 1200 * time.Millisecond
		ctx, stop := context.WithCancel(w.Context())
		var wg sync.WaitGroup
		for process := range 2 {
			l := w.open(advisory.Config{Wait: time.Minute})
			for i := range 2 {
				wg.Go(func() {
					time.Sleep(time.Duration(2*i+process) * hold / 4)
					for ctx.Err() == nil {
						assert.NoError(w, l.With(shared).Do(w.Context(), entity(1), func(context.Context) error {
							time.Sleep(hold)
							return nil
						}))
					}
				})
			}
		}
		writer := w.open(advisory.Config{Wait: time.Minute})
		time.Sleep(5 * time.Second)
		for range 10 {
			start := time.Now()
			w.release(w.acquire(writer, 1))
			assert.LessOrEqual(w, time.Since(start), 3*hold)
			time.Sleep(hold)
		}
		stop()
		wg.Wait()
	})
}

// A writer that holds the turnstile gives up. Nobody notifies the readers that it kept out.
func TestReadersJoinAgainWhenAWriterElsewhereHasGivenUp(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{Wait: time.Minute}), w.open(advisory.Config{})
		first := w.acquire(a.With(shared), 1)
		writer := w.beginAcquire(w.Context(), b.With(advisory.Options{Wait: time.Second}), 1)
		time.Sleep(500 * time.Millisecond)
		second := w.beginAcquire(w.Context(), a.With(shared), 1)
		w.assertWaits(second)
		require.ErrorIs(w, (<-writer).err, advisory.ErrTimeout)
		start := time.Now()
		lock := w.granted(second)
		assert.LessOrEqual(w, time.Since(start), 500*time.Millisecond)
		w.release(first, lock)
	})
}

func TestWaitersForASlotGetTheirShareBesideNewcomers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		newcomers, waiters := w.open(advisory.Config{MaxConns: 40}), w.open(advisory.Config{MaxConns: 40})
		end := time.Now().Add(time.Minute)
		var wg sync.WaitGroup
		var grants [2]atomic.Int64
		for i, l := range []*advisory.Locker{newcomers, waiters} {
			for range 2 {
				wg.Go(func() {
					for time.Now().Before(end) {
						lock, err := l.AcquireSlot(w.Context(), entity(1), 1)
						if !assert.NoError(w, err) {
							return
						}
						time.Sleep(2 * time.Millisecond)
						assert.NoError(w, lock.Release())
						grants[i].Add(1)
					}
				})
			}
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
		one, two := grants[0].Load(), grants[1].Load()
		share := float64(two) / float64(one+two)
		assert.InDelta(w, 0.5, share, 0.1, "%d and %d", one, two)
	})
}

func TestAKeyIsFreeForASkipRightAfterAnOwnWaitForItGaveUp(t *testing.T) {
	t.Parallel()
	for _, options := range []advisory.Options{{}, shared} {
		inBubble(t, func(w *world) {
			l, other := w.open(advisory.Config{}), w.open(advisory.Config{})
			for range 20 {
				foreign := w.acquire(other, 1)
				ctx, cancel := context.WithCancel(w.Context())
				p := w.beginAcquire(ctx, l, 1)
				time.Sleep(20 * time.Millisecond)
				w.release(foreign)
				cancel()
				if o := <-p; o.err == nil {
					w.release(o.lock)
				}
				ran, err := l.With(options).DoOrSkip(w.Context(), entity(1), nothing)
				require.NoError(w, err)
				assert.True(w, ran)

				foreign = w.acquire(other, 1)
				ctx, cancel = context.WithCancel(w.Context())
				p = w.beginAcquire(ctx, l, 1)
				time.Sleep(20 * time.Millisecond)
				cancel()
				require.Error(w, (<-p).err)
				w.release(foreign)
				ran, err = l.With(options).DoOrSkip(w.Context(), entity(1), nothing)
				require.NoError(w, err)
				assert.True(w, ran)
			}
			synctest.Wait()
		})
	}
}
