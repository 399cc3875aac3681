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
	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/session/memory"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

func TestCloseEndsHoldersAndWaiters(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{MaxConns: 6}), w.open(advisory.Config{})
		foreign := w.acquire(b, 9)
		full, err := b.AcquireSlot(w.Context(), entity(6), 1)
		require.NoError(w, err)
		exclusive, one, two := w.acquire(a, 1), w.acquire(a.With(shared), 2), w.acquire(a.With(shared), 2)
		all := w.now(w.beginAll(w.Context(), a, 3, 4))
		slot, err := a.AcquireSlot(w.Context(), entity(5), 2)
		require.NoError(w, err)
		waiters := []pending{
			w.beginAcquire(w.Context(), a, 1),
			w.beginAcquire(w.Context(), a, 2),
			w.beginAcquire(w.Context(), a, 9), // at the server
			w.begin(func() (*advisory.Lock, error) { return a.AcquireSlot(w.Context(), entity(6), 1) }),
		}
		if w.locksPerConn == 1 {
			waiters = append(waiters, w.beginAcquire(w.Context(), a, 10), w.beginAcquire(w.Context(), a, 10)) // for a connection
		}
		for range 2 { // it is idempotent
			a.Close()
		}
		synctest.Wait()
		for _, p := range waiters {
			require.Len(w, p, 1, "waits end before Close returns, or at once after it")
			require.ErrorIs(w, (<-p).err, advisory.ErrClosed)
		}
		for _, lock := range []*advisory.Lock{exclusive, one, two, all, slot} {
			require.ErrorIs(w, context.Cause(lock.Context()), advisory.ErrLost)
			require.ErrorIs(w, context.Cause(lock.Context()), advisory.ErrClosed)
			require.ErrorIs(w, lock.Release(), advisory.ErrLost)
		}
		assert.ElementsMatch(w, append(tags(9), full.Key().Tag()), w.server.Locked())
		for _, call := range []func() (*advisory.Lock, error){
			func() (*advisory.Lock, error) { return a.Acquire(w.Context(), entity(1)) },
			func() (*advisory.Lock, error) { return a.TryAcquire(w.Context(), entity(1)) },
			func() (*advisory.Lock, error) { return a.AcquireAll(w.Context(), entity(1), entity(2)) },
			func() (*advisory.Lock, error) { return a.AcquireSlot(w.Context(), entity(1), 2) },
		} {
			_, err := call()
			require.ErrorIs(w, err, advisory.ErrClosed)
		}
		w.release(foreign, full)
	})
}

// A table that is not to be trusted has no locks and no requests any more, and nobody hangs.
func TestABugInTheLockTableLosesAllLocksAndClosesTheLocker(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		held, foreign := w.acquire(a, 1), w.acquire(b, 2)
		here, there := w.beginAcquire(w.Context(), a, 1), w.beginAcquire(w.Context(), a, 2)
		synctest.Wait()
		ctx := held.Context()
		a.Break()
		<-ctx.Done()
		var bug locktable.BugError
		require.ErrorAs(w, context.Cause(ctx), &bug)
		require.ErrorIs(w, context.Cause(ctx), advisory.ErrLost)
		require.Error(w, (<-here).err)
		require.Error(w, (<-there).err)
		_, err := a.Acquire(w.Context(), entity(3))
		require.ErrorIs(w, err, advisory.ErrClosed)
		_, err = a.TryAcquire(w.Context(), entity(3))
		require.ErrorIs(w, err, advisory.ErrClosed)
		require.ErrorIs(w, held.Release(), advisory.ErrLost)
		require.ErrorIs(w, held.Release(), advisory.ErrReleased)
		w.release(foreign, w.acquire(b, 1))
		a.Close()
		require.Zero(w, a.Stats().Held)
		require.Zero(w, a.Stats().Sessions)
	})
}

// Whatever the connections do when the bug is found, Close returns, and each session is closed once.
func TestCloseReturnsAfterABugWhateverIsUnderWay(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(w *world, l *advisory.Locker, f *faulty) (end func()){
		"nothing": func(*world, *advisory.Locker, *faulty) func() { return nil },
		"idle":    func(w *world, l *advisory.Locker, _ *faulty) func() { w.release(w.acquire(l, 1)); return nil },
		"held":    func(w *world, l *advisory.Locker, _ *faulty) func() { w.acquire(l, 1); return nil },
		"lost": func(w *world, l *advisory.Locker, _ *faulty) func() {
			w.acquire(l, 1)
			w.server.KillSessions()
			return nil
		},
		"connects":  blocked(func(f *faulty, wait func()) { f.onAcquire = func() error { wait(); return nil } }),
		"statement": blocked(func(f *faulty, wait func()) { f.onTry = func(namespace.Tag) error { wait(); return nil } }),
		"statement of a lost connection": func(w *world, l *advisory.Locker, f *faulty) func() {
			end := blocked(func(f *faulty, wait func()) { f.onTry = func(namespace.Tag) error { wait(); return nil } })(w, l, f)
			w.server.KillSessions()
			return end
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				l, f := w.openFaulty(advisory.Config{})
				end := prepare(w, l, f)
				synctest.Wait()
				l.Break()
				if end != nil {
					synctest.Wait()
					end()
				}
				l.Close()
				require.Zero(w, l.Stats().Sessions)
				require.Zero(w, l.Stats().Held)
			})
		})
	}
}

// blocked has a caller wait until end is called.
func blocked(in func(f *faulty, wait func())) func(w *world, l *advisory.Locker, f *faulty) func() {
	return func(w *world, l *advisory.Locker, f *faulty) func() {
		free := make(chan struct{})
		in(f, func() { <-free })
		p := w.beginAcquire(w.Context(), l, 1)
		return func() {
			close(free)
			require.Error(w, (<-p).err)
		}
	}
}

// stall delays all tries until the returned function is called.
func (f *faulty) stall() (goOn func()) {
	gate := make(chan struct{})
	f.onTry = func(namespace.Tag) error { <-gate; return nil }
	return sync.OnceFunc(func() { close(gate) })
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
				bubble.Sleep(time.Second)
				told.Add(1)
			}}
			l, err := openOn(w.server, w.config(advisory.Config{Tracer: slow}))
			require.NoError(w, err)
			one, two := w.acquire(l, 1), w.acquire(l, 2)
			bubble.Sleep(time.Second) // watched
			if killed {
				w.server.KillSessions()
				bubble.Sleep(time.Millisecond)
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
		f.onUnlocked = func() { bubble.Sleep(2 * time.Second) }
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
			bubble.Sleep(50 * time.Millisecond) // idle, and under watch
			w.server.KillSessions()
			five, err := l.Acquire(w.Context(), entity(5)) // while the loss is reported
			require.NoError(w, err)
			bubble.Sleep(time.Second)
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
