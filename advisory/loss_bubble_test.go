package advisory_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
)

func TestAHolderLearnsOfItsLoss(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		lock := w.acquire(a, 1)
		ctx := lock.Context()
		time.Sleep(time.Minute)
		w.server.Kill(w.pidOf(1))
		<-lock.Lost()
		<-ctx.Done()
		require.ErrorIs(w, context.Cause(ctx), advisory.ErrLost)
		lost, ok := errors.AsType[*advisory.LostError](context.Cause(ctx))
		require.True(w, ok)
		assert.Equal(w, entity(1), lost.Key)
		assert.Equal(w, time.Minute, lost.Held)
		require.ErrorContains(w, lost, "terminating connection")
		assert.Zero(w, a.Stats().Held)

		err := lock.Release()
		require.ErrorIs(w, err, advisory.ErrLost)
		assert.Same(w, lost, err)
		require.ErrorIs(w, lock.Release(), advisory.ErrReleased)
		assert.Equal(w, int64(1), a.Stats().Lost)
	})
}

func TestALossIsSeenByWhoAsksForItOnlyLater(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		lock := w.acquire(w.open(advisory.Config{}), 1)
		w.server.KillSessions()
		synctest.Wait()
		<-lock.Lost()
		require.ErrorIs(w, context.Cause(lock.Context()), advisory.ErrLost)
		require.ErrorIs(w, lock.Release(), advisory.ErrLost)
	})
}

func TestOneSessionsLossIsNoOthers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		one := w.acquire(a, 1)
		defer w.fill(a)()
		two := w.acquire(a, 2)
		w.server.Kill(w.pidOf(1))
		<-one.Lost()
		require.NoError(w, two.Context().Err())
		w.release(two)
		require.ErrorIs(w, one.Release(), advisory.ErrLost)
	})
}

func TestALossMeetsARelease(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		for range 300 {
			lock := w.acquire(a, 1)
			go w.server.KillSessions()
			if err := lock.Release(); err != nil {
				require.ErrorIs(w, err, advisory.ErrLost)
			}
			w.assertIdle(a)
		}
	})
}

func TestDoReturnsTheLossBesideItsFunctionsError(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		broken := errors.New("broken")
		for _, result := range []error{nil, broken} {
			err := a.Do(w.Context(), entity(1), func(ctx context.Context) error {
				w.server.KillSessions()
				<-ctx.Done()
				return result
			})
			_, ok := errors.AsType[*advisory.LostError](err)
			assert.True(w, ok)
			require.ErrorIs(w, err, advisory.ErrLost)
			if result != nil {
				require.ErrorIs(w, err, broken)
			}
		}
	})
}

func TestAWaiterWhoseSessionEndsGoesOnWithAnother(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		lock := w.acquire(b, 1)
		p := w.beginAcquire(w.Context(), a, 1)
		for range 5 {
			for pid := range uint32(100) {
				if pid != w.pidOf(1) {
					w.server.Kill(pid)
				}
			}
			time.Sleep(200 * time.Millisecond)
			assert.Equal(w, 1, w.server.Waiters(entity(1)))
		}
		w.release(lock)
		w.release(w.now(p))
		assert.Zero(w, a.Stats().Lost)
	})
}

func TestAServerThatEndsEverySessionIsReported(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f := w.openFaulty(advisory.Config{MaxConns: 2})
		f.onSession = func() { w.server.KillSessions() }
		start := time.Now()
		_, err := a.Acquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrUnavailable)
		require.NotErrorIs(w, err, advisory.ErrLost)
		require.ErrorContains(w, err, "terminating connection")
		assert.Less(w, time.Since(start), 15*time.Second)
	})
}

func TestIdleSessionsThatDiedAreReplaced(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		const conns = 10 // by default
		sessions := conns
		if w.locksPerConn > 1 {
			sessions /= w.locksPerConn
		}
		a := w.open(advisory.Config{})
		var locks []*advisory.Lock
		for i := range int64(conns) {
			locks = append(locks, w.acquire(a, i))
		}
		w.release(locks...)
		synctest.Wait()
		assert.Equal(w, sessions, a.Stats().Sessions)
		w.server.KillSessions() // a restart
		w.release(w.acquire(a, 1))
	})
}

func TestTheLossOfASharedLockIsThatOfAllItsReaders(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		var readers []*advisory.Lock
		for range 3 {
			readers = append(readers, w.acquire(a.With(shared), 1))
		}
		w.release(readers[0])
		w.server.Kill(w.pidOf(1))
		for _, lock := range readers[1:] {
			<-lock.Lost()
			require.ErrorIs(w, lock.Release(), advisory.ErrLost)
		}
		assert.Equal(w, int64(2), a.Stats().Lost)
	})
}

func TestTheLossOfALockLetsTheNextWaiterIn(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		lock := w.acquire(a, 1)
		local, remote := w.beginAcquire(w.Context(), a, 1), w.beginAcquire(w.Context(), b, 1)
		w.server.Kill(w.pidOf(1))
		second := w.now(remote) // it stood first in the server's queue
		<-lock.Lost()
		w.assertWaits(local)
		w.release(second)
		w.release(w.now(local))
		require.ErrorIs(w, lock.Release(), advisory.ErrLost)
	})
}

func TestEveryReaderSeesTheLossWhileTheFirstIsTold(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var readers []*advisory.Lock
		a := w.open(advisory.Config{Tracer: advisory.Tracer{Loss: func(context.Context, advisory.LossData) {
			for _, lock := range readers {
				assert.ErrorIs(w, context.Cause(expired(lock)), advisory.ErrLost)
			}
		}}})
		for range 3 {
			readers = append(readers, w.acquire(a.With(shared), 1))
		}
		w.server.Kill(w.pidOf(1))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(w, int64(3), a.Stats().Lost)
		for _, lock := range readers {
			require.ErrorIs(w, lock.Release(), advisory.ErrLost)
		}
	})
}

// A key that is always in use has one record. The record must not keep data of holders that lost
// the key.
func TestAKeyInUseKeepsNothingOfALostLock(t *testing.T) {
	t.Parallel()
	type key struct{}
	inBubble(t, func(w *world) {
		l := w.open(advisory.Config{})
		var next pending
		value := func() weak.Pointer[[1 << 10]byte] {
			value := new([1 << 10]byte)
			lock, err := l.Acquire(context.WithValue(w.Context(), key{}, value), entity(1))
			require.NoError(w, err)
			next = w.beginAcquire(w.Context(), l, 1)
			w.server.KillSessions()
			<-lock.Lost()
			require.ErrorIs(w, lock.Release(), advisory.ErrLost)
			return weak.Make(value)
		}()
		holder := w.granted(next)
		synctest.Wait()                                               // who told of the loss is through
		for tries := 0; tries < 10 && value.Value() != nil; tries++ { // a stack may hold it for a moment
			runtime.GC()
		}
		assert.Nil(w, value.Value())
		w.release(holder)
	})
}

func TestALossIsCountedWhenItsHolderSeesIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l := w.open(advisory.Config{})
		for i := range int64(300) {
			lock := w.acquire(l, 1)
			lost := lock.Lost()
			w.server.KillSessions()
			<-lost
			require.Equal(w, i+1, l.Stats().Lost)
			require.ErrorIs(w, lock.Release(), advisory.ErrLost)
		}
	})
}
