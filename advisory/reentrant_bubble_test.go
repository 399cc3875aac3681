package advisory_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
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

func TestALostLockDoesNotMakeItsContextReentrant(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		lock := w.acquire(a, 1)
		ctx := context.WithoutCancel(lock.Context())
		w.server.KillSessions()
		<-lock.Lost()
		again, err := a.Acquire(ctx, entity(1))
		require.NoError(w, err)
		w.release(again)
		require.ErrorIs(w, lock.Release(), advisory.ErrLost)
	})
}

func TestAnotherLockersLockIsNotReentrant(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		lock := w.acquire(a, 1)
		_, err := b.Acquire(lock.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrTimeout)
		require.NotErrorIs(w, err, advisory.ErrReentrant)

		inner, err := b.Acquire(lock.Context(), entity(2)) // and hides nothing of a's
		require.NoError(w, err)
		require.ErrorIs(w, a.Do(inner.Context(), entity(1), nothing), advisory.ErrReentrant)
		w.release(inner, lock)
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
