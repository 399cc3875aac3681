package advisory_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/namespace"
)

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
