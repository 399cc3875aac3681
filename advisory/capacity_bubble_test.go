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
)

func TestAConnectionCarriesAsManyLocksAsItMay(t *testing.T) {
	t.Parallel()
	for _, locksPerConn := range []int{1, 2, 3} {
		inBubbleOf(t, locksPerConn, func(w *world) {
			l := w.open(advisory.Config{MaxConns: 4})
			on := make(map[uint32][]*advisory.Lock)
			for i := range 3 * locksPerConn {
				lock := w.acquire(l, int64(i))
				on[lock.PID()] = append(on[lock.PID()], lock)
			}
			require.Len(w, on, 3)
			for _, locks := range on {
				assert.Len(w, locks, locksPerConn)
				w.release(locks[0])
				again := w.acquire(l, 100) // takes the room of the one that left
				assert.Equal(w, locks[0].PID(), again.PID())
				w.release(again)
				w.release(locks[1:]...)
			}
		})
	}
}

// All connections are full, or wait. The wait is interrupted, not the new lock held up.
func TestAWaitLeavesItsConnectionToALockThatHasNone(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 2, func(w *world) {
		l, other := w.open(advisory.Config{MaxConns: 1, Wait: time.Hour}), w.open(advisory.Config{})
		foreign := w.acquire(other, 1)
		waiter := w.beginAcquire(w.Context(), l, 1)
		outer, second := w.acquire(l, 2), w.acquire(l, 3)
		time.Sleep(time.Second)
		start := time.Now()
		nested, err := l.Acquire(outer.Context(), entity(4))
		require.NoError(w, err)
		assert.Less(w, time.Since(start), 100*time.Millisecond)
		assert.Equal(w, 2, l.Stats().Sessions)
		w.assertWaits(waiter)
		w.release(foreign)
		w.release(nested, outer, second, w.granted(waiter))
	})
}

func TestALockBeyondAllConnectionsEndsAsThePoolExhausted(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 2, func(w *world) {
		l := w.open(advisory.Config{MaxConns: 1}) // and one more
		locks := []*advisory.Lock{w.acquire(l, 1), w.acquire(l, 2), w.acquire(l, 3), w.acquire(l, 4)}
		_, err := l.With(advisory.Options{Wait: time.Second}).Acquire(w.Context(), entity(5))
		require.ErrorIs(w, err, advisory.ErrPoolExhausted)
		require.ErrorIs(w, err, advisory.ErrTimeout)
		_, err = l.Acquire(locks[0].Context(), entity(5))
		require.ErrorIs(w, err, advisory.ErrPoolExhausted, "those who hold the others may be waiting, too")
		w.release(locks...)
		w.release(w.acquire(l, 5))
	})
}

// The connection that a wait leaves is not made yet: it goes on with the new lock then.
func TestAWaitLeavesAConnectionThatIsBeingMade(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 3, func(w *world) {
		l, f := w.openFaulty(advisory.Config{MaxConns: 1, Wait: time.Hour})
		other := w.open(advisory.Config{})
		foreign := w.acquire(other, 1)
		first := w.acquire(l, 2)
		made := make(chan struct{})
		f.onAcquire = func() error { <-made; return nil }
		waiter := w.beginAcquire(w.Context(), l, 1) // on a second connection
		full := []*advisory.Lock{first, w.acquire(l, 3), w.acquire(l, 4)}
		third := w.beginAcquire(w.Context(), l, 5)
		time.Sleep(time.Second)
		w.assertWaits(third)
		close(made)
		w.release(w.now(third))
		w.release(full...)
		w.assertWaits(waiter)
		w.release(foreign)
		w.release(w.granted(waiter))
	})
}

// A wait was canceled while a connection was being made for it. Nobody uses that connection: a lock
// that is requested then gets another one.
func TestALockIsNotAskedForOnAConnectionThatWasGivenUp(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 2, func(w *world) {
		l, f := w.openFaulty(advisory.Config{MaxConns: 3})
		other := w.open(advisory.Config{})
		foreign := w.acquire(other, 1)
		first := w.acquire(l, 2)
		made := make(chan struct{})
		f.onAcquire = func() error { <-made; return context.Canceled }
		ctx, cancel := context.WithCancel(w.Context())
		waiter := w.beginAcquire(ctx, l, 1)
		cancel()
		require.ErrorIs(w, (<-waiter).err, context.Canceled)
		synctest.Wait()
		f.onAcquire = nil
		second := w.acquire(l, 3)
		third := w.acquire(l, 4)
		close(made)
		w.release(first, second, third, foreign)
	})
}

// A lock waits for room, and the wait that had the only other connection made is canceled.
func TestALockGoesOnWhenAWaitGivesUpAConnectionThatIsBeingMade(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 3, func(w *world) {
		l, f := w.openFaulty(advisory.Config{MaxConns: 1, Wait: time.Hour})
		other := w.open(advisory.Config{})
		foreign := w.acquire(other, 1)
		first := w.acquire(l, 2)
		made := make(chan struct{})
		f.onAcquire = func() error { <-made; return nil }
		ctx, cancel := context.WithCancel(w.Context())
		waiter := w.beginAcquire(ctx, l, 1)
		full := []*advisory.Lock{first, w.acquire(l, 3), w.acquire(l, 4)}
		third := w.beginAcquire(w.Context(), l, 5)
		w.assertWaits(third)
		cancel()
		require.ErrorIs(w, (<-waiter).err, context.Canceled)
		synctest.Wait()
		close(made)
		w.release(w.granted(third), foreign)
		w.release(full...)
	})
}

func TestAKeyIsTriedOnAConnectionThatLivesIfTheServerHasNoFurtherOne(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 3, func(w *world) {
		l, other := w.open(advisory.Config{MaxConns: 3, Wait: time.Hour}), w.open(advisory.Config{})
		foreign, own := w.acquire(other, 1), w.acquire(l, 2)
		w.server.SetUnavailable(errors.New("sorry, too many clients already"))
		_, err := l.With(advisory.Options{Wait: 10 * time.Second}).Acquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrTimeout)
		require.NotErrorIs(w, err, advisory.ErrUnavailable)
		waiter := w.beginAcquire(w.Context(), l, 1)
		canceled, cancel := context.WithCancel(w.Context())
		second := w.beginAcquire(canceled, l, 1)
		time.Sleep(time.Minute)
		cancel()
		w.release(foreign)
		start := time.Now()
		lock := w.granted(waiter)
		assert.Less(w, time.Since(start), 2*time.Second)
		assert.Equal(w, own.PID(), lock.PID())
		require.ErrorIs(w, (<-second).err, context.Canceled)
		w.server.SetUnavailable(nil)
		w.release(lock, own)
	})
}

// One wait moves to a connection, and so makes room on another one. A wait without a connection
// must not be given the same connection.
func TestTwoWaitsNeverShareAConnection(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 2, func(w *world) {
		l, other := w.open(advisory.Config{MaxConns: 1, Wait: time.Hour}), w.open(advisory.Config{}) // 2 connections
		foreign := []*advisory.Lock{w.acquire(other, 1), w.acquire(other, 2)}
		own := []*advisory.Lock{w.acquire(l, 10), w.acquire(l, 11), w.acquire(l, 12)}
		require.Equal(w, own[0].PID(), own[1].PID())
		require.NotEqual(w, own[0].PID(), own[2].PID())
		time.Sleep(30 * time.Millisecond)
		one := w.beginAcquire(w.Context(), l, 1) // nobody waits where a lock is younger than 100 ms: it is polled
		time.Sleep(80 * time.Millisecond)
		two := w.beginAcquire(w.Context(), l, 2)
		time.Sleep(time.Second)
		w.assertWaits(one)
		w.assertWaits(two)
		w.release(foreign...)
		w.release(w.granted(one), w.granted(two))
		w.release(own...)
	})
}
