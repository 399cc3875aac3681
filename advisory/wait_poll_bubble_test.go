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

func TestAWonWaitLivesOnItsConnectionUntilItIsReleased(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		l, other := w.open(advisory.Config{MaxConns: 1}), w.open(advisory.Config{})
		foreign := w.acquire(other, 1)
		p := w.beginAcquire(w.Context(), l, 1)
		assert.Equal(w, 1, w.server.Waiters(entity(1)))
		mine := w.acquire(l, 2) // the other connection goes on
		w.release(foreign)
		won := w.now(p)
		assert.NotEqual(w, mine.PID(), won.PID())
		w.server.Kill(won.PID())
		<-won.Lost()
		require.ErrorIs(w, won.Release(), advisory.ErrLost)
		w.release(mine)
	})
}

func TestKeysBeyondTheWaitingConnectionsTakeTurnsAndAreTriedTogether(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		const n, conns = 10, 2
		l, other := w.open(advisory.Config{MaxConns: conns, Wait: time.Hour}), w.open(advisory.Config{MaxConns: n})
		var foreign []*advisory.Lock
		var waits []pending
		for i := range int64(n) {
			foreign = append(foreign, w.acquire(other, i))
			waits = append(waits, w.beginAcquire(w.Context(), l, i))
		}
		queued := make(map[int64]bool)
		for range 20 * n { // in steps
			for i := range int64(n) {
				if w.server.Waiters(entity(i)) > 0 {
					queued[i] = true
				}
			}
			time.Sleep(300 * time.Millisecond)
			synctest.Wait()
		}
		assert.Len(w, queued, n, "everybody had a turn in the server's queue")
		before := l.Operations()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		after := l.Stats()
		assert.LessOrEqual(w, l.Operations()-before, int64(10*20*n), "nobody spins")
		assert.LessOrEqual(w, after.Sessions, conns+1)
		start := time.Now()
		w.release(foreign...)
		for _, p := range waits {
			w.release(w.granted(p))
		}
		assert.LessOrEqual(w, time.Since(start), time.Second)
	})
}

func TestLocksThatAreHeldForEverDoNotUseTheWaitingConnectionsUp(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		l, other := w.open(advisory.Config{MaxConns: 1}), w.open(advisory.Config{})
		foreign := []*advisory.Lock{w.acquire(other, 1), w.acquire(other, 2)}
		first, second := w.beginAcquire(w.Context(), l, 1), w.beginAcquire(w.Context(), l, 2)
		w.release(foreign[0])
		one := w.granted(first) // on the only connection that waits
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(w, 1, w.server.Waiters(entity(2)), "which waits for others, too")
		start := time.Now()
		w.release(one)
		assert.Equal(w, start, time.Now(), "an unlock interrupts that")
		assert.Empty(w, w.server.Holders(entity(1)))
		w.release(foreign[1])
		w.release(w.granted(second))
	})
}

// The callers wait at the server, and without a connection to wait on.
func TestACallerWhoIsCanceledLeavesWhereverItWaits(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		l, other := w.open(advisory.Config{MaxConns: 1}), w.open(advisory.Config{})
		foreign := []*advisory.Lock{w.acquire(other, 1), w.acquire(other, 2)}
		ctx, cancel := context.WithCancel(w.Context())
		waits := []pending{w.beginAcquire(ctx, l, 1), w.beginAcquire(ctx, l, 2)}
		assert.Equal(w, 1, w.server.Waiters(entity(1))+w.server.Waiters(entity(2)), "one of them is polled")
		for range 2 { // and the control: whoever is not canceled waits on
			time.Sleep(2 * time.Second)
			for _, p := range waits {
				w.assertWaits(p)
			}
		}
		start := time.Now()
		cancel()
		for _, p := range waits {
			require.ErrorIs(w, (<-p).err, context.Canceled)
		}
		assert.Equal(w, start, time.Now())
		w.assertIdle(l)
		again := w.beginAcquire(w.Context(), l, 2)
		w.release(foreign...)
		w.release(w.granted(again))
	})
}

// Each waiter that leaves costs the same, however many waiters are behind it.
func TestManyWaitersOfOneKeyCanLeaveAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		const n = 10_000
		l, other := w.open(advisory.Config{}), w.open(advisory.Config{})
		foreign := w.acquire(other, 1)
		ctx, cancel := context.WithCancel(w.Context())
		waits := make([]pending, n)
		for i := range waits {
			waits[i] = make(pending, 1)
			go func() {
				lock, err := l.Acquire(ctx, entity(1))
				waits[i] <- outcome{lock, err, time.Now()}
			}()
		}
		synctest.Wait()
		assert.Equal(w, n, l.Stats().Waiting)
		before := l.Operations()
		start := time.Now()
		cancel()
		for _, p := range waits {
			require.ErrorIs(w, (<-p).err, context.Canceled)
		}
		assert.Equal(w, start, time.Now())
		synctest.Wait()
		assert.LessOrEqual(w, l.Operations()-before, int64(10), "the server hears of the last one")
		w.release(foreign)
	})
}
