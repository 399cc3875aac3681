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
	"github.com/pglatch/pglatch/internal/session"
)

// paused returns a Locker whose sessions will be lost without a word, and what says
// that the machine stood still.
func paused(w *world) (l *advisory.Locker, f *faulty, stood func(time.Duration)) {
	w.Helper()
	l, f = w.openFaulty(advisory.Config{})
	var extra atomic.Int64
	start := time.Now()
	l.SetClock(func() time.Duration { return time.Since(start) + time.Duration(extra.Load()) })
	return l, f, func(d time.Duration) { extra.Add(int64(d)) }
}

func TestADerivedContextIsToldSoonAfterTheProcessWasStopped(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f, stood := paused(w)
		lock := w.acquire(a, 1)
		derived, cancel := context.WithTimeout(lock.Context(), time.Hour)
		defer cancel()
		f.set(session.Lost)
		time.Sleep(time.Minute)
		require.NoError(w, derived.Err(), "without a pause nobody tells it here: that is the session's part")

		stood(time.Minute)
		time.Sleep(advisory.PauseEvery)
		synctest.Wait()
		require.ErrorIs(w, context.Cause(derived), advisory.ErrLost)
		assert.Empty(w, w.server.Holders(entity(1)), "and its session is ended")
		require.ErrorIs(w, lock.Release(), advisory.ErrLost)
	})
}

// The waiter's key is asked for on a new connection, in the middle of the look at all connections.
func TestWhoWaitsForALockThatAPauseEndsGetsItNext(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f, stood := paused(w)
		lock, other := w.acquire(a, 1), w.acquire(a, 2)
		p := w.beginAcquire(w.Context(), a, 1)
		synctest.Wait()
		f.onSession = func() { f.set(session.Held) }
		f.set(session.Lost)
		stood(time.Minute)
		time.Sleep(advisory.PauseEvery)
		require.ErrorIs(w, lock.Release(), advisory.ErrLost)
		w.release(w.now(p))
		_ = other.Release() // it is lost if it was looked at before the new connection was there
	})
}

func TestDoneAndLostLookBeforeAnybodyTellsThem(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(*advisory.Lock) <-chan struct{}{
		"Done": func(l *advisory.Lock) <-chan struct{} { return l.Context().Done() },
		"Lost": (*advisory.Lock).Lost,
		"Done of a value": func(l *advisory.Lock) <-chan struct{} {
			return context.WithValue(l.Context(), ctxKey{}, 1).Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				a, f := w.openFaulty(advisory.Config{})
				lock := w.acquire(a, 1)
				select {
				case <-look(lock):
					require.Fail(w, "it is held")
				default:
				}
				f.set(session.Lost)
				select {
				case <-look(lock):
				default:
					assert.Fail(w, "the first look said that all is well")
				}
				require.ErrorIs(w, lock.Release(), advisory.ErrLost)
			})
		})
	}
}

func TestAPauseEndsOnlyWhatExpiredInIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f, stood := paused(w)
		one, two := w.acquire(a, 1), w.acquire(a.With(shared), 2)
		stood(time.Minute)
		time.Sleep(advisory.PauseEvery)
		require.NoError(w, one.Context().Err())
		f.set(session.Lost)
		w.Cleanup(func() { f.set(session.Held) })
		stood(time.Minute)
		time.Sleep(advisory.PauseEvery)
		synctest.Wait()
		for _, lock := range []*advisory.Lock{one, two} {
			require.ErrorIs(w, context.Cause(lock.Context()), advisory.ErrLost)
			require.ErrorIs(w, lock.Release(), advisory.ErrLost)
		}
	})
}

// A lock that is taken later, after a while in which nothing was held, is watched too.
func TestPausesAreWatchedForAgainWhenALockIsHeldAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f, stood := paused(w)
		w.release(w.acquire(a, 1))
		time.Sleep(time.Minute)
		stood(time.Minute)
		lock := w.acquire(a, 1)
		derived, cancel := context.WithCancel(lock.Context())
		defer cancel()
		time.Sleep(time.Second)
		require.NoError(w, derived.Err())
		f.set(session.Lost)
		stood(time.Minute)
		time.Sleep(advisory.PauseEvery)
		synctest.Wait()
		require.Error(w, derived.Err())
		require.ErrorIs(w, lock.Release(), advisory.ErrLost)
	})
}
