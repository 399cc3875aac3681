package advisory_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/session/memory"
	"github.com/pglatch/pglatch/namespace"
)

func TestARequestInsideItsOwnLockIsReentrantAtOnce(t *testing.T) {
	t.Parallel()
	for _, outer := range []advisory.Options{{}, shared} {
		for _, inner := range []advisory.Options{{}, shared} {
			inBubble(t, func(w *world) {
				a := w.open(advisory.Config{})
				lock := w.acquire(a.With(outer), 1)
				start := time.Now()
				for _, call := range []func(context.Context) (*advisory.Lock, error){
					func(ctx context.Context) (*advisory.Lock, error) { return a.With(inner).Acquire(ctx, entity(1)) },
					func(ctx context.Context) (*advisory.Lock, error) { return a.With(inner).TryAcquire(ctx, entity(1)) },
					func(ctx context.Context) (*advisory.Lock, error) {
						return a.With(inner).AcquireAll(ctx, entity(2), entity(1), entity(3))
					},
				} {
					_, err := call(lock.Context())
					require.ErrorIs(w, err, advisory.ErrReentrant)
					e, ok := errors.AsType[*advisory.ReentrantError](err)
					require.True(w, ok)
					assert.Equal(w, entity(1), e.Held)
				}
				assert.Zero(w, time.Since(start))
				w.release(lock) // untouched
				w.assertIdle(a)
			})
		}
	}
}

func TestAnyLockAroundARequestCounts(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		assert.NoError(w, a.Do(w.Context(), entity(1), func(ctx context.Context) error {
			return a.Do(ctx, entity(2), func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				require.ErrorIs(w, a.Do(ctx, entity(1), nothing), advisory.ErrReentrant)
				require.ErrorIs(w, a.Do(ctx, entity(2), nothing), advisory.ErrReentrant)
				return nil
			})
		}))
		all, err := a.AcquireAll(w.Context(), entity(1), entity(2))
		require.NoError(w, err)
		require.ErrorIs(w, a.Do(all.Context(), entity(2), nothing), advisory.ErrReentrant)
		w.release(all)
	})
}

func TestAReleasedLockDoesNotMakeItsContextReentrant(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		lock := w.acquire(a, 1)
		later := context.WithoutCancel(lock.Context()) // of a job that goes on
		require.ErrorIs(w, a.Do(later, entity(1), nothing), advisory.ErrReentrant)
		w.release(lock)
		again, err := a.Acquire(later, entity(1))
		require.NoError(w, err)
		w.release(again)

		other := w.acquire(a, 1) // somebody else's: a wait, not re-entrance
		_, err = a.Acquire(later, entity(1))
		require.ErrorIs(w, err, advisory.ErrTimeout)
		w.release(other)
	})
}

func TestDoOrSkipSkipsItsOwnLockAndCountsAndLogsIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var log bytes.Buffer
		a := w.open(advisory.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		assert.NoError(w, a.Do(w.Context(), entity(1), func(ctx context.Context) error {
			for range 3 {
				ran, err := a.DoOrSkip(ctx, entity(1), nothing)
				require.NoError(w, err)
				assert.False(w, ran)
			}
			return nil
		}))
		s := a.Stats()
		assert.Equal(w, int64(3), s.ReentrantSkips)
		assert.Zero(w, s.Skips)
		assert.Equal(w, 1, strings.Count(log.String(), "key=agent/1"), "once for each key")
	})
}

func TestASessionNeverReentersALockOfAnotherAcquisition(t *testing.T) {
	t.Parallel()
	for _, locksPerConn := range []int{1, 2, many} {
		inBubbleOf(t, locksPerConn, func(w *world) {
			l, f := w.openFaulty(advisory.Config{}) // whose sessions find it
			first := w.acquire(l, 1)
			_, err := l.TryAcquire(w.Context(), entity(1))
			require.ErrorIs(w, err, advisory.ErrHeld)
			second := w.beginAcquire(w.Context(), l, 1)
			w.assertWaits(second)
			w.release(first)
			w.release(w.granted(second))

			answer := make(chan struct{})
			f.onTry = func(namespace.Tag) error { <-answer; return nil }
			first, third := nil, w.beginAcquire(w.Context(), l, 1)
			_, err = l.TryAcquire(w.Context(), entity(1))
			require.ErrorIs(w, err, advisory.ErrHeld, "it is asked for")
			close(answer)
			first = w.granted(third)
			w.release(first)
		})
	}
}

// The control: the server itself lets a session in again, and that is found.
func TestTheServerLetsASessionInAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: memory.NewServer()}
		f := &faulty{Source: w.server.Source("bare")}
		s, err := f.Acquire(t.Context())
		require.NoError(t, err)
		defer s.Close(false)
		try := func() *session.Op { return &session.Op{Tag: entity(9).Tag()} }
		for i, want := range []error{nil, errReentered} {
			o := try()
			require.ErrorIs(t, s.Do([]*session.Op{o}, time.Second), want, i)
			assert.True(t, o.Held, "a session re-enters its own lock")
		}
	})
}

func TestAKeyThatAnotherLockerOfTheProcessHoldsIsReentrant(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.openTogether(advisory.Config{}), w.openTogether(advisory.Config{})
		outer := w.acquire(a, 1)
		ctx := w.acquireIn(outer.Context(), b, 2).Context() // the key is two locks away
		start := time.Now()
		for name, call := range map[string]func() error{
			"Acquire":    func() error { _, err := b.Acquire(ctx, entity(1)); return err },
			"shared":     func() error { _, err := b.With(shared).Acquire(ctx, entity(1)); return err },
			"TryAcquire": func() error { _, err := b.TryAcquire(ctx, entity(1)); return err },
			"AcquireAll": func() error { _, err := b.AcquireAll(ctx, entity(0), entity(1)); return err },
		} {
			e, ok := errors.AsType[*advisory.ReentrantError](call())
			require.True(w, ok, name)
			assert.Equal(w, entity(1), e.Held, name)
		}
		ran, err := b.DoOrSkip(ctx, entity(1), nothing)
		require.NoError(w, err)
		assert.False(w, ran)
		assert.Equal(w, int64(1), b.Stats().ReentrantSkips)
		assert.Zero(w, time.Since(start))
		assert.Zero(w, b.WaitsAbroad())

		slot, err := a.AcquireSlot(ctx, entity(3), 2)
		require.NoError(w, err)
		_, err = b.AcquireSlot(slot.Context(), entity(3), 2)
		require.ErrorIs(w, err, advisory.ErrReentrant)
		w.release(slot, w.acquireIn(slot.Context(), b, 3)) // the semaphore and the mutex on its key are two things

		w.release(outer)
		w.release(w.acquireIn(context.WithoutCancel(ctx), b, 1))
		for h := range b.Held() {
			assert.Equal(w, entity(2), h.Keys[0])
		}
	})
}

// A control: Lockers that do not know that they are in one process wait for each other.
func TestAKeyOfALockerElsewhereIsHeld(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{Wait: time.Second})
		outer := w.acquire(a, 1)
		_, err := b.Acquire(outer.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrTimeout)
		require.NotErrorIs(w, err, advisory.ErrReentrant)
		w.release(outer)
	})
}

func TestACircleThroughLockersOfOneProcessIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.openTogether(advisory.Config{}), w.openTogether(advisory.Config{})
		one, two := w.acquire(a, 1), w.acquire(b, 2)
		p := w.beginAcquire(one.Context(), a, 2)
		start := time.Now()
		_, err := b.Acquire(two.Context(), entity(1))
		assert.Zero(w, time.Since(start))
		assertCycle(w, err, entity(1), entity(2))
		w.release(two)
		w.release(w.granted(p), one)

		// Each asks the Locker that the other holds with, one of them for several keys.
		one, two = w.acquire(a, 1), w.acquire(b, 2)
		all := w.begin(func() (*advisory.Lock, error) { return b.AcquireAll(two.Context(), entity(0), entity(1)) })
		three := w.beginAcquire(w.acquireIn(w.Context(), a, 3).Context(), b, 0) // waits for the part that it has
		_, err = a.Acquire(one.Context(), entity(2))
		assertCycle(w, err, entity(2), entity(1))
		assert.Positive(w, a.WaitsAbroad())
		w.release(one)
		w.release(w.granted(all), two)
		w.release(w.granted(three))
		for h := range a.Held() {
			assert.Equal(w, entity(3), h.Keys[0])
		}
	})
}

func TestNothingIsKnownOfLockersThatAreClosed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.openTogether(advisory.Config{}), w.openTogether(advisory.Config{})
		outer := w.acquire(a, 1)
		taken := w.acquire(a, 2)
		p := w.beginAcquire(context.WithoutCancel(outer.Context()), b, 2)
		assert.Equal(w, 1, b.WaitsAbroad())
		require.True(w, w.known())
		a.Close()
		w.release(w.granted(p))
		assert.Zero(w, b.WaitsAbroad())
		require.ErrorIs(w, outer.Release(), advisory.ErrLost)
		require.ErrorIs(w, taken.Release(), advisory.ErrLost)
		lost := context.WithoutCancel(outer.Context())
		w.release(w.acquireIn(lost, b, 1))
		b.Close()
		assert.False(w, w.known(), "the database is known without a Locker")
	})
}

// known reports whether this process knows of a Locker on the world's server.
func (w *world) known() bool {
	return slices.Contains(advisory.Databases(), w.database())
}

// acquireIn is acquire within a context; the lock is released at the end of the test, unless it was.
func (w *world) acquireIn(ctx context.Context, l *advisory.Locker, i int64) *advisory.Lock {
	w.Helper()
	lock, err := l.Acquire(ctx, entity(i))
	require.NoError(w, err)
	w.Cleanup(func() { _ = lock.Release() })
	return lock
}
