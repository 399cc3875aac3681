package advisory_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
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
