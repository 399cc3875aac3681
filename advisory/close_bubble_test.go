package advisory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
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
