package advisory_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/namespace"
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
		bubble.Sleep(9 * time.Millisecond)
		second := w.now(w.beginAcquire(w.Context(), readers, 1))
		bubble.Sleep(time.Millisecond)
		third := w.beginAcquire(w.Context(), readers, 1)
		w.assertWaits(third)
		w.release(first, second)
		lock := w.now(writer)
		w.assertWaits(third)
		w.release(lock)
		w.release(w.now(third))
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

func TestOperationsThatArriveTogetherGoOutTogether(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		const n = 2500
		l, f := w.openFaulty(advisory.Config{MaxLocks: 5000})
		answer := make(chan struct{})
		f.onTry = func(namespace.Tag) error { <-answer; return nil }
		waits := make([]pending, n)
		for i := range waits {
			waits[i] = make(pending, 1)
			go func() {
				lock, err := l.Acquire(w.Context(), entity(int64(i)))
				waits[i] <- outcome{lock, err, time.Now()}
			}()
		}
		synctest.Wait()
		close(answer)
		locks := make([]*advisory.Lock, n)
		for i, p := range waits {
			locks[i] = w.granted(p)
		}
		s := l.Stats()
		assert.EqualValues(w, n, l.Operations())
		assert.LessOrEqual(w, s.Batches, int64(5), "1024 at most in each")
		assert.Equal(w, n, s.Locks)
		assert.Len(w, w.server.Locked(), n)
		w.release(locks...)
	})
}

func TestKeysAreSpreadSoThatALossCostsItsShare(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 250, func(w *world) {
		const n = 1000
		l := w.open(advisory.Config{MaxLocks: n})
		on := make(map[uint32][]*advisory.Lock)
		for i := range int64(n) {
			lock := w.acquire(l, i)
			on[lock.PID()] = append(on[lock.PID()], lock)
		}
		require.Len(w, on, 4)
		bubble.Sleep(time.Second)
		killed := w.pidOf(1)
		require.True(w, w.server.Kill(killed))
		synctest.Wait()
		for pid, locks := range on {
			assert.InDelta(w, n/4, len(locks), n/10)
			for _, lock := range locks {
				if pid == killed {
					require.ErrorIs(w, lock.Release(), advisory.ErrLost)
				} else {
					w.release(lock)
				}
			}
		}
		assert.EqualValues(w, len(on[killed]), l.Stats().Lost, "each gets its loss once, and nobody else gets one")
	})
}

func TestALockBeyondTheCapIsRefused(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 2, func(w *world) {
		l := w.open(advisory.Config{MaxLocks: 3})
		locks := []*advisory.Lock{w.acquire(l, 1), w.acquire(l, 2), w.acquire(l, 3)}
		for range 2 {
			_, err := l.Acquire(w.Context(), entity(4))
			require.ErrorIs(w, err, advisory.ErrLockTableFull)
			_, err = l.TryAcquire(w.Context(), entity(4))
			require.ErrorIs(w, err, advisory.ErrLockTableFull)
			_, err = l.AcquireSlot(w.Context(), entity(4), 2)
			require.ErrorIs(w, err, advisory.ErrLockTableFull)
		}
		assert.Equal(w, 3, l.Stats().Locks)
		w.release(locks[0])
		w.release(w.acquire(l, 4), locks[1], locks[2])
	})
}

func TestCallersWhoLeaveASilentServerLeaveNothing(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		l, f := w.openFaulty(advisory.Config{})
		keep := w.acquire(l, 0)
		answer := make(chan struct{})
		f.onTry = func(namespace.Tag) error { <-answer; return nil }
		ctx, cancel := context.WithCancel(w.Context())
		var waits []pending
		for i := range int64(20) {
			waits = append(waits, w.beginAcquire(ctx, l, i+1))
		}
		start := time.Now()
		cancel()
		for _, p := range waits {
			o := <-p
			require.ErrorIs(w, o.err, context.Canceled)
			assert.LessOrEqual(w, o.at.Sub(start), 100*time.Millisecond)
		}
		again := w.beginAcquire(w.Context(), l, 1)
		w.assertWaits(again)
		close(answer)
		w.release(w.granted(again))
		synctest.Wait()
		assert.Len(w, w.server.Locked(), 1, "late grants were undone")
		w.release(keep)
	})
}

func TestAServerThatIsAwayIsNotStormed(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		l, f := w.openFaulty(advisory.Config{})
		var dials atomic.Int32
		var up atomic.Bool
		f.onAcquire = func() error {
			dials.Add(1)
			if up.Load() {
				return nil
			}
			return errors.New("connection refused")
		}
		for start := time.Now(); time.Since(start) < time.Minute; {
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					_, err := l.Acquire(w.Context(), entity(1))
					assert.Error(w, err)
				})
			}
			wg.Wait()
		}
		assert.Less(w, dials.Load(), int32(130), "about one each second")
		assert.Greater(w, dials.Load(), int32(55))
		up.Store(true)
		w.release(w.acquire(l, 1))
	})
}

func TestAnIdleConnectionIsGivenBackAndTakenAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l, f := w.openFaulty(advisory.Config{})
		var taken atomic.Int32
		f.onSession = func() { taken.Add(1) }
		for i := range int32(3) {
			w.release(w.acquire(l, 1))
			bubble.Sleep(time.Second)
			assert.Equal(w, i+1, taken.Load())
		}
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
