package advisory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/namespace"
)

func TestCloseEndsHoldersAndWaiters(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{MaxConns: 5}), w.open(advisory.Config{})
		foreign := w.acquire(b, 9)
		exclusive, one, two := w.acquire(a, 1), w.acquire(a.With(shared), 2), w.acquire(a.With(shared), 2)
		all := w.now(w.beginAll(w.Context(), a, 3, 4))
		slot, err := a.AcquireSlot(w.Context(), entity(5), 2)
		require.NoError(w, err)
		waiters := []pending{
			w.beginAcquire(w.Context(), a, 1),
			w.beginAcquire(w.Context(), a, 2),
			w.beginAcquire(w.Context(), a, 9), // at the server
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
		assert.Equal(w, tags(9), w.server.Locked())
		for _, call := range []func() (*advisory.Lock, error){
			func() (*advisory.Lock, error) { return a.Acquire(w.Context(), entity(1)) },
			func() (*advisory.Lock, error) { return a.TryAcquire(w.Context(), entity(1)) },
			func() (*advisory.Lock, error) { return a.AcquireAll(w.Context(), entity(1), entity(2)) },
			func() (*advisory.Lock, error) { return a.AcquireSlot(w.Context(), entity(1), 2) },
		} {
			_, err := call()
			require.ErrorIs(w, err, advisory.ErrClosed)
		}
		w.release(foreign)
	})
}

func TestCloseMeetsEverythingElse(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		for i := range 100 {
			l, err := openOn(w.server, advisory.Config{MaxConns: 3})
			require.NoError(w, err)
			for g := range 8 {
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(g)*time.Millisecond)
					defer cancel()
					var lock *advisory.Lock
					var err error
					switch g % 4 {
					case 0:
						lock, err = l.Acquire(ctx, entity(1))
					case 1:
						lock, err = l.With(shared).Acquire(ctx, entity(1))
					case 2:
						lock, err = l.AcquireAll(ctx, entity(1), entity(2))
					default:
						lock, err = l.AcquireSlot(ctx, entity(3), 1)
					}
					if err == nil {
						time.Sleep(time.Millisecond)
						_ = lock.Release()
					}
				}()
			}
			time.Sleep(time.Duration(i%10) * time.Millisecond / 3)
			l.Close()
			require.Empty(w, w.server.Locked())
			synctest.Wait()
			assert.Zero(w, l.Stats().SessionsInUse)
		}
		time.Sleep(time.Second)
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
