package advisory_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// entitiesOnOne returns n entities that live on one connection, in the
// order in which AcquireAll takes them.
func (w *world) entitiesOnOne(l *advisory.Locker, n int) (entities []int64) {
	w.Helper()
	var pid uint32
	for i := int64(100); len(entities) < n; i++ {
		lock := w.acquire(l, i)
		if pid == 0 {
			pid = lock.PID()
		}
		if lock.PID() == pid {
			entities = append(entities, i)
		}
		defer w.release(lock)
	}
	slices.SortFunc(entities, func(a, b int64) int { return entity(a).Tag().Compare(entity(b).Tag()) })
	return entities
}

// The first key is held when its connection dies, and the try of the second one has not
// been sent there yet.
func TestAConnectionThatDiesBetweenTheKeysOfAnAcquireAllEndsIt(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 5, func(w *world) {
		l, f := w.openFaulty(advisory.Config{})
		on := w.entitiesOnOne(l, 3)
		before, first := w.acquire(l, on[2]), w.acquire(l.With(shared), on[0])
		answer, released := make(chan struct{}), make(chan error, 1)
		f.onUnlocked = func() { <-answer }
		go func() { released <- before.Release() }()
		synctest.Wait() // the connection is in use
		p := w.begin(func() (*advisory.Lock, error) {
			return l.With(shared).AcquireAll(w.Context(), entity(on[0]), entity(on[1])) // joins the first
		})
		w.assertWaits(p)
		f.set(session.Lost)
		require.Error(w, first.Context().Err(), "it looks, and the connection is lost")
		f.set(session.Held)
		close(answer)
		require.ErrorIs(w, (<-p).err, advisory.ErrUnavailable)
		require.ErrorIs(w, <-released, advisory.ErrLost)
		require.ErrorIs(w, first.Release(), advisory.ErrLost)
		w.release(w.now(w.begin(func() (*advisory.Lock, error) {
			return l.AcquireAll(w.Context(), entity(on[0]), entity(on[1]))
		})))
	})
}

// The keys of an AcquireAll on connections that did not die go back with its release.
func TestTheReleaseOfALostLockGivesItsOtherKeysBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l, other := w.open(advisory.Config{}), w.open(advisory.Config{})
		first, last := int64(1), int64(2)
		if entity(first).Tag().Compare(entity(last).Tag()) > 0 {
			first, last = last, first
		}
		reader := w.acquire(l.With(shared), first) // on a connection of its own
		foreign := w.acquire(other, last)
		p := w.begin(func() (*advisory.Lock, error) { return l.With(shared).AcquireAll(w.Context(), entity(1), entity(2)) })
		w.assertWaits(p)
		w.release(foreign)
		both := w.now(p)
		require.NotEqual(w, w.pidOf(first), w.pidOf(last))
		w.server.Kill(w.pidOf(first))
		<-both.Lost()
		require.ErrorIs(w, both.Release(), advisory.ErrLost)
		require.ErrorIs(w, reader.Release(), advisory.ErrLost)
		w.release(w.now(w.beginAcquire(w.Context(), other, last)))
	})
}

// A connection that ends in the instant in which a wait on it succeeds grants nothing.
func TestAWaitThatSucceedsOnAConnectionThatHasEndedIsNoGrant(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		l, f := w.openFaulty(advisory.Config{MaxConns: 1})
		other := w.open(advisory.Config{})
		var won atomic.Pointer[advisory.Lock] // whose connection is lost then
		f.onWon = func() {
			if lock := won.Swap(nil); lock != nil {
				f.set(session.Lost)
				assert.Error(w, lock.Context().Err(), "it looks")
				f.set(session.Held)
			}
		}
		foreign := w.acquire(other, 1)
		p := w.beginAcquire(w.Context(), l, 1)
		w.release(foreign)
		one := w.now(p) // lives on the only connection that waits
		time.Sleep(time.Second)
		second := w.acquire(other, 2)
		q := w.beginAcquire(w.Context(), l, 2)
		time.Sleep(time.Second)
		won.Store(one)
		w.release(second)
		o := <-q
		if o.err == nil {
			require.NotEqual(w, one.PID(), o.lock.PID(), "that connection is gone")
			w.release(o.lock)
		}
		require.ErrorIs(w, one.Release(), advisory.ErrLost)
	})
}

// The Locker retries parked keys again and again. Without room for them, that must end too.
func TestParkedKeysWithoutRoomForTheirLocksHoldUpNobody(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		l, other := w.open(advisory.Config{MaxConns: 1, MaxLocks: 3}), w.open(advisory.Config{})
		var foreign []*advisory.Lock
		var waits []pending
		for i := range int64(4) {
			foreign = append(foreign, w.acquire(other, i))
			waits = append(waits, w.beginAcquire(w.Context(), l, i))
		}
		mine := []*advisory.Lock{w.acquire(l, 10), w.acquire(l, 11)} // and one waits
		_, err := l.Acquire(w.Context(), entity(12))
		require.ErrorIs(w, err, advisory.ErrLockTableFull)
		time.Sleep(5 * time.Second)
		w.release(mine...)
		w.release(foreign...)
		for _, p := range waits {
			w.release(w.granted(p))
		}
	})
}

// A reader asks whether a writer waits, and leaves before its question is sent. It must not be
// appointed to drive the connection.
func TestAReaderThatLeavesBeforeItsQuestionHoldsUpNobody(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		l, f := w.openFaulty(advisory.Config{})
		first := w.acquire(l.With(shared), 1)
		time.Sleep(time.Second)
		answer := make(chan struct{})
		f.onTry = func(namespace.Tag) error { <-answer; return nil }
		busy := w.beginAcquire(w.Context(), l, 2)
		ctx, cancel := context.WithCancel(w.Context())
		reader := w.beginAcquire(ctx, l.With(shared), 1)
		cancel()
		require.ErrorIs(w, (<-reader).err, context.Canceled)
		close(answer)
		lock := w.now(busy)
		assert.EqualValues(w, 1, f.questions.Load(), "somebody else asks")
		w.release(lock)
		w.release(first)
		w.release(w.now(w.beginAcquire(w.Context(), l, 3)))
	})
}

func TestATryThatStandsBehindOneWithoutAConnectionIsNotToldOfAHeldLock(t *testing.T) {
	t.Parallel()
	for _, exclusive := range []bool{true, false} {
		inBubbleOf(t, 1, func(w *world) {
			l := w.open(advisory.Config{MaxConns: 1, Wait: time.Second})
			options := advisory.Options{Shared: !exclusive}
			used := w.acquire(l, 1) // the only connection
			first := w.beginAcquire(w.Context(), l.With(advisory.Options{Wait: 500 * time.Millisecond}), 2)
			var ran bool
			p := w.begin(func() (*advisory.Lock, error) {
				var err error
				ran, err = l.With(options).DoOrSkip(w.Context(), entity(2), nothing)
				return nil, err
			})
			w.assertWaits(p)
			require.ErrorIs(w, (<-first).err, advisory.ErrPoolExhausted)
			w.release(used)
			require.NoError(w, (<-p).err)
			assert.True(w, ran, "nobody held it")

			used = w.acquire(l, 1) // and the control: one that gets the lock is a holder
			first = w.beginAcquire(w.Context(), l, 2)
			p = w.begin(func() (*advisory.Lock, error) {
				var err error
				ran, err = l.With(options).DoOrSkip(w.Context(), entity(2), nothing)
				return nil, err
			})
			w.assertWaits(p)
			w.release(used)
			require.NoError(w, (<-p).err)
			assert.False(w, ran)
			w.release(w.now(first))
			synctest.Wait()
		})
	}
}
