package advisory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/namespace"
)

func (w *world) beginAll(ctx context.Context, l *advisory.Locker, entities ...int64) pending {
	keys := make([]namespace.Key, len(entities))
	for i, e := range entities {
		keys[i] = entity(e)
	}
	return w.begin(func() (*advisory.Lock, error) { return l.AcquireAll(ctx, keys...) })
}

// tags returns the tags of entities.
func tags(entities ...int64) (tags []namespace.Tag) {
	for _, e := range entities {
		tags = append(tags, entity(e).Tag())
	}
	return tags
}

func TestAcquireAllTakesEachKeyOnceInOneOrderOnOneSession(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		lock := w.now(w.beginAll(w.Context(), a, 3, 1, 2, 3, 1))
		assert.Equal(w, []namespace.Key{entity(1), entity(2), entity(3)}, lock.Keys())
		assert.Equal(w, tags(1, 2, 3), w.server.Locked())
		s := a.Stats()
		assert.Equal(w, 1, s.SessionsInUse)
		assert.Equal(w, 1, s.Held, "it is one lock")
		assert.Equal(w, int64(1), s.Acquired)
		w.release(lock)
		assert.Empty(w, w.server.Locked())
		require.ErrorIs(w, lock.Release(), advisory.ErrReleased)
	})
}

func TestAcquireAllOfOneKeyIsAcquire(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		lock := w.now(w.beginAll(w.Context(), a, 1, 1))
		p := w.beginAcquire(w.Context(), a, 1)
		w.release(lock)
		w.release(w.now(p))
		assert.Equal(w, int64(1), a.Stats().HandOvers)
	})
}

func TestAcquireAllIsAllOrNothing(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	for _, where := range []string{"this process", "another process"} {
		for _, tt := range []struct {
			name string
			end  func(w *world, a *advisory.Locker, cancel context.CancelCauseFunc)
			want error
		}{
			{"the wait runs out", func(*world, *advisory.Locker, context.CancelCauseFunc) {}, advisory.ErrTimeout},
			{"the caller leaves", func(_ *world, _ *advisory.Locker, cancel context.CancelCauseFunc) { cancel(enough) }, enough},
			{"the Locker is closed", func(_ *world, a *advisory.Locker, _ context.CancelCauseFunc) { a.Close() }, advisory.ErrClosed},
		} {
			t.Run(tt.name+", held by "+where, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(w *world) {
					a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
					holder := a
					if where != "this process" {
						holder = b
					}
					middle := w.acquire(holder, 2)
					ctx, cancel := context.WithCancelCause(w.Context())
					defer cancel(nil)
					p := w.beginAll(ctx, a, 1, 2, 3)
					w.assertWaits(p)
					assert.Equal(w, tags(1, 2), w.server.Locked(), "the keys before the one that is held")
					tt.end(w, a, cancel)
					require.ErrorIs(w, (<-p).err, tt.want)
					synctest.Wait()
					if err := middle.Release(); errors.Is(tt.want, advisory.ErrClosed) && holder == a {
						require.ErrorIs(w, err, advisory.ErrLost)
					} else {
						require.NoError(w, err)
					}
					synctest.Wait()
					assert.Empty(w, w.server.Locked())
				})
			})
		}
	}
}

func TestAFaultInTheMiddleOfAcquireAllGivesEverythingBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f := w.openFaulty(advisory.Config{})
		f.onTry = func(tag namespace.Tag) error {
			if tag == entity(2).Tag() {
				return advisory.ErrLockTableFull
			}
			return nil
		}
		p := w.beginAll(w.Context(), a, 1, 2, 3)
		require.ErrorIs(w, (<-p).err, advisory.ErrLockTableFull)
		synctest.Wait()
		assert.Empty(w, w.server.Locked())

		f.onTry = func(tag namespace.Tag) error { // the session ends
			if tag == entity(2).Tag() {
				w.server.KillSessions()
			}
			return nil
		}
		p = w.beginAll(w.Context(), a, 1, 2, 3)
		require.ErrorIs(w, (<-p).err, advisory.ErrUnavailable)
		synctest.Wait() // no try is on its way any more
		f.onTry = nil
		w.release(w.now(w.beginAll(w.Context(), a, 1, 2, 3)))
	})
}

func TestAcquireAllWaitsForOneTimeoutAltogether(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{Wait: time.Second}), w.open(advisory.Config{})
		one, two := w.acquire(b, 1), w.acquire(b, 2)
		start := time.Now()
		p := w.beginAll(w.Context(), a, 1, 2)
		bubble.Sleep(800 * time.Millisecond)
		w.release(one)
		o := <-p
		require.ErrorIs(w, o.err, advisory.ErrTimeout)
		assert.Equal(w, time.Second, o.at.Sub(start))
		w.release(two)
	})
}

func TestAKeyThatIsLostDuringTheWaitForTheNextFailsThemAll(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l, other := w.open(advisory.Config{}), w.open(advisory.Config{})
		first, last := int64(1), int64(2)
		if entity(first).Tag().Compare(entity(last).Tag()) > 0 {
			first, last = last, first
		}
		foreign := w.acquire(other, last)
		p := w.begin(func() (*advisory.Lock, error) { return l.AcquireAll(w.Context(), entity(1), entity(2)) })
		bubble.Sleep(time.Second)
		w.assertWaits(p)
		start := time.Now()
		w.server.Kill(w.pidOf(first))
		synctest.Wait()
		w.release(foreign) // too late
		o := <-p
		require.ErrorIs(w, o.err, advisory.ErrUnavailable)
		assert.LessOrEqual(w, o.at.Sub(start), 100*time.Millisecond)
		w.release(w.acquire(other, first))
		synctest.Wait()
		assert.Empty(w, w.server.Locked())
	})
}

func TestALateAnswerToAReleaseDoesNotTouchTheNextHolders(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l, f := w.openFaulty(advisory.Config{})
		answer := make(chan struct{})
		f.onUnlocked = func() { <-answer }
		both := w.granted(w.beginAll(w.Context(), l, 1, 2))
		released := make(chan error, 1)
		go func() { released <- both.Release() }()
		synctest.Wait() // the server has both back, and nobody knows
		p := w.beginAcquire(w.Context(), l, 1)
		waiter := w.beginAcquire(w.Context(), l, 1)

		close(answer)
		require.NoError(w, <-released)
		next := w.now(p)
		require.Len(w, held(l), 1)
		assert.Equal(w, 1, held(l)[0].Waiters)
		_, err := l.TryAcquire(w.Context(), entity(1))
		e, ok := errors.AsType[*advisory.HeldError](err)
		require.True(w, ok, "%v", err)
		require.NotNil(w, e.Holder)
		assert.True(w, e.Holder.Local)
		w.release(next)
		w.release(w.now(waiter))
		assert.Equal(w, int64(1), l.Stats().HandOvers)
	})
}

func TestAnAcquireAllWhoseSessionDiesWhileItWaitsIsToldAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		blocker := w.acquire(a, 2)
		defer w.fill(a)()
		done := make(chan error, 1)
		go func() {
			_, err := a.AcquireAll(w.Context(), entity(1), entity(2))
			done <- err
		}()
		synctest.Wait()
		start := time.Now()
		w.server.Kill(w.pidOf(1))
		require.ErrorIs(w, <-done, advisory.ErrUnavailable)
		assert.Less(w, time.Since(start), time.Second)
		w.release(blocker)
		w.release(w.acquire(a, 1))
	})
}
