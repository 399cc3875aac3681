package advisory_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/session/memory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

// stall delays all tries until the returned function is called.
func (f *faulty) stall() (goOn func()) {
	gate := make(chan struct{})
	f.onTry = func(namespace.Tag) error { <-gate; return nil }
	return sync.OnceFunc(func() { close(gate) })
}

func TestTheLossOfAConnectionInABatchIsToldToItsHoldersAndTheTriesGoToAnother(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		l, f := w.openFaulty(advisory.Config{MaxLocks: 500})
		holder := w.acquire(l, 0)
		goOn := f.stall()
		const n = 200
		var waiters []pending
		for i := range n {
			waiters = append(waiters, w.beginAcquire(w.Context(), l, int64(i+1)))
		}
		time.Sleep(time.Second)
		require.Len(w, held(l), 1)
		assert.True(w, held(l)[0].Doubtful, "an answer is overdue")
		w.server.KillSessions()
		goOn()
		<-holder.Lost()
		require.ErrorIs(w, holder.Release(), advisory.ErrLost)
		for _, p := range waiters {
			lock := w.granted(p)
			assert.NotEqual(w, holder.PID(), lock.PID())
			w.release(lock)
		}
		assert.Empty(w, w.server.Locked())
	})
}

// A bubble in which a goroutine waits forever fails.
func TestACloseLeavesNobodyWaitingForOneWhoIsToDrive(t *testing.T) {
	t.Parallel()
	for round := range 200 {
		synctest.Test(t, func(t *testing.T) {
			l, err := openOn(memory.NewServer(), advisory.Config{LocksPerConn: []int{many, 20}[round%2]})
			require.NoError(t, err)
			locks := make([]*advisory.Lock, 40)
			for i := range locks {
				locks[i], err = l.Acquire(t.Context(), entity(int64(i)))
				require.NoError(t, err)
			}
			var wg sync.WaitGroup
			for _, lock := range locks {
				wg.Go(func() { _ = lock.Release() })
			}
			for range round % 7 {
				runtime.Gosched()
			}
			l.Close()
			wg.Wait()
		})
	}
}

func TestACloseReturnsWhenAllHaveBeenTold(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		for _, killed := range []bool{false, true} {
			var told atomic.Int32
			slow := advisory.Tracer{Loss: func(context.Context, advisory.LossData) {
				time.Sleep(time.Second)
				told.Add(1)
			}}
			l, err := openOn(w.server, w.config(advisory.Config{Tracer: slow}))
			require.NoError(w, err)
			one, two := w.acquire(l, 1), w.acquire(l, 2)
			time.Sleep(time.Second) // watched
			if killed {
				w.server.KillSessions()
				time.Sleep(time.Millisecond)
			}
			l.Close()
			assert.EqualValues(w, 2, told.Load())
			require.ErrorIs(w, one.Release(), advisory.ErrLost)
			require.ErrorIs(w, two.Release(), advisory.ErrLost)
		}
	})
}

func TestACloseIsNotHeldUpByAnUnlockThatFailsMeanwhile(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		f := &faulty{Source: w.server.Source("faulty")}
		l, err := advisory.Open(session.WithSource(w.Context(), f), w.config(advisory.Config{}))
		require.NoError(w, err)
		other := w.open(advisory.Config{})
		mine, foreign := w.acquire(l, 2), w.acquire(other, 1)
		p := w.beginAcquire(w.Context(), l, 1)
		w.release(foreign)
		won := w.now(p)
		f.onUnlocked = func() { time.Sleep(2 * time.Second) }
		released := make(chan error, 1)
		go func() { released <- won.Release() }()
		synctest.Wait()
		w.server.KillSessions()
		start := time.Now()
		l.Close()
		assert.LessOrEqual(w, time.Since(start), 2*time.Second)
		<-released // held, or lost when the answer did not come
		require.ErrorIs(w, mine.Release(), advisory.ErrLost)
	})
}

// The end of a connection must leave no signal for a gathering driver behind: it would wake the
// next user of the reused request before that gets its answer.
func TestALossWhileOneGathersLeavesNoSignalBehind(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	for range 300 {
		inBubbleOf(t, many, func(w *world) {
			l, f := w.openFaulty(advisory.Config{})
			together := func(from, n int64) (locks []*advisory.Lock) { // one batch of the first, then one of the others
				goOn := f.stall()
				var waiters []pending
				for i := from; i < from+n; i++ {
					waiters = append(waiters, w.beginAcquire(w.Context(), l, i))
				}
				goOn()
				for _, p := range waiters {
					locks = append(locks, w.granted(p))
				}
				f.onTry = nil
				return locks
			}
			lost := together(1, 4)
			time.Sleep(50 * time.Millisecond) // idle, and under watch
			w.server.KillSessions()
			five, err := l.Acquire(w.Context(), entity(5)) // while the loss is reported
			require.NoError(w, err)
			time.Sleep(time.Second)
			for _, lock := range lost {
				require.ErrorIs(w, lock.Release(), advisory.ErrLost)
			}
			w.release(together(11, 8)...)
			w.release(five)
			synctest.Wait()
			assert.Empty(w, w.server.Locked())
		})
	}
}

func TestAWaitWhoseTimeIsOverDoesNotSpin(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l, other := w.open(advisory.Config{}), w.open(advisory.Config{})
		foreign := w.acquire(other, 1)
		for range 10 {
			_, err := l.With(advisory.Options{Wait: time.Nanosecond}).Acquire(w.Context(), entity(1))
			require.ErrorIs(w, err, advisory.ErrTimeout)
			synctest.Wait()
		}
		assert.LessOrEqual(w, l.Stats().WaitSteps, int64(20))
		w.release(foreign)
	})
}
