package advisory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

func TestHeldDescribesEachLockOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		since := time.Now()
		all, err := a.With(advisory.Options{Label: "move", Shared: true}).AcquireAll(w.Context(), entity(2), entity(1))
		require.NoError(w, err)
		time.Sleep(time.Second)
		one, two := w.beginAcquire(w.Context(), a, 1), w.beginAcquire(w.Context(), a, 2)
		want := advisory.HeldLock{
			Keys: []namespace.Key{entity(1), entity(2)}, Label: "move", Shared: true, Since: since, PID: w.pidOf(1), Waiters: 2,
		}
		assert.Equal(w, []advisory.HeldLock{want}, held(a))

		w.release(all)
		w.release(w.now(one), w.now(two))
		assert.Empty(w, held(a))
	})
}

func TestAHandOverBeginsANewHolding(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		first := w.acquire(a, 1)
		p := w.beginAcquire(w.Context(), a.With(advisory.Options{Label: "second"}), 1)
		time.Sleep(time.Millisecond)
		w.release(first)
		second := w.now(p)
		require.Len(w, held(a), 1)
		assert.Equal(w, "second", held(a)[0].Label)
		assert.Equal(w, time.Now(), held(a)[0].Since)
		w.release(second)
	})
}

func TestStatsCountWhatHappened(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{MaxConns: 4}), w.open(advisory.Config{})
		foreign := w.acquire(b, 2)
		first := w.acquire(a, 1)
		handOver := w.beginAcquire(w.Context(), a, 1)
		one, two := w.acquire(a.With(shared), 3), w.acquire(a.With(shared), 3)
		brief := a.With(advisory.Options{Wait: time.Second})
		waiter := w.beginAcquire(w.Context(), brief, 2)
		want := advisory.Stats{
			Held: 3, Waiting: 2, Acquired: 3, HandOvers: 1, WaitSteps: 2,
			Sessions: 3, SessionsInUse: 3, MaxConns: 4, Locks: 3, Batches: 3,
		}
		if w.locksPerConn > 1 { // two keys on one connection, and a wait
			got := a.Stats()
			assert.Contains(w, []int{2, 3}, got.SessionsInUse)
			want.Sessions, want.SessionsInUse, want.MaxConns = got.Sessions, got.SessionsInUse, 4+1
			want.MaxLocks = 100
		}
		assert.Equal(w, want, a.Stats())
		assert.EqualValues(w, 3, a.Operations())

		w.release(first)
		second := w.now(handOver)
		require.ErrorIs(w, (<-waiter).err, advisory.ErrTimeout)
		_, err := a.DoOrSkip(w.Context(), entity(2), nothing)
		require.NoError(w, err)
		_, err = a.DoOrSkip(second.Context(), entity(1), nothing)
		require.NoError(w, err)
		w.release(second)
		w.server.Kill(w.pidOf(3))
		<-one.Lost()
		<-two.Lost()
		require.ErrorIs(w, one.Release(), advisory.ErrLost)
		require.ErrorIs(w, two.Release(), advisory.ErrLost)
		w.release(foreign)
		synctest.Wait()
		s := a.Stats()
		assert.GreaterOrEqual(w, s.WaitSteps, int64(2))
		s.MaxConns -= min(1, w.locksPerConn-1)
		s.MaxLocks, s.Batches = 0, 0
		s.WaitSteps, s.Sessions = 0, 0 // the end of the wait and of its last wait step are one instant
		assert.Equal(w, advisory.Stats{
			Acquired: 4, HandOvers: 2, Skips: 1, ReentrantSkips: 1, Timeouts: 1, Lost: 2, MaxConns: 4,
		}, s)
	})
}

// The description of locks blocks all other changes, so it goes page by page.
func TestHeldDescribesAFewLocksAtATime(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		const n = 2000
		l := w.open(advisory.Config{MaxLocks: n})
		locks := make([]*advisory.Lock, n)
		for i := range locks {
			locks[i] = w.acquire(l, int64(i))
		}
		assert.Len(w, held(l), n)
		seen := 0
		for range l.Held() {
			if seen++; seen == 1 {
				w.release(locks...)
			}
		}
		assert.Less(w, seen, n/4, "the others were released before they were described")
	})
}
