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
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

// refusedOf returns the error of the one of two calls that closed a circle. Either may be the first to return: the
// other one can have its lock, and be through, before the one that was refused runs again.
func refusedOf(t *testing.T, errs <-chan error) error {
	t.Helper()
	refused, other := <-errs, <-errs
	if refused == nil {
		refused, other = other, refused
	}
	require.ErrorIs(t, refused, advisory.ErrDeadlock)
	require.NoError(t, other, "the other one gets its lock")
	return refused
}

// TestACycleThroughTwoProcessesEndsInATimeout is its control.
func TestACycleThroughTwoLockersOfOneProcessIsRefused(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		config := advisory.Config{DSN: dsn, Wait: advisory.NoTimeout}
		a, b := open(t, config), open(t, config)
		one, err := a.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		two, err := b.Acquire(t.Context(), agents.ID(2))
		require.NoError(t, err)
		inner := func(l *advisory.Locker, outer *advisory.Lock, i int64) error {
			err := l.Do(outer.Context(), agents.ID(i), func(context.Context) error { return nil })
			return errors.Join(err, outer.Release())
		}
		errs := make(chan error, 2)
		go func() { errs <- inner(a, one, 2) }()
		go func() { errs <- inner(a, two, 1) }() // and not with the Locker that it holds 2 with
		refusedOf(t, errs)
	})
}

func TestOneKeyInTwoLockersOfOneProcess(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		a, b := open(t, advisory.Config{DSN: dsn}), open(t, advisory.Config{DSN: dsn})
		elsewhere := open(t, advisory.Config{DSN: pgtest.DSN(t)}) // another database of the server
		outer, err := a.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		_, err = b.Acquire(outer.Context(), agents.ID(1))
		require.ErrorIs(t, err, advisory.ErrReentrant)
		ran, err := b.DoOrSkip(outer.Context(), agents.ID(1), func(context.Context) error { return nil })
		require.NoError(t, err)
		assert.False(t, ran)
		ran, err = elsewhere.DoOrSkip(outer.Context(), agents.ID(1), func(context.Context) error { return nil })
		require.NoError(t, err)
		assert.True(t, ran)
		require.NoError(t, outer.Release())
	})
}

func TestACycleThroughTwoProcessesEndsInATimeout(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		a, b := open(t, advisory.Config{DSN: dsn}).Elsewhere(), open(t, advisory.Config{DSN: dsn})
		one, err := a.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		two, err := b.Acquire(t.Context(), agents.ID(2))
		require.NoError(t, err)
		errs := make(chan error, 2)
		wait := func(l *advisory.Locker, outer *advisory.Lock, i int64) {
			_, err := l.With(advisory.Options{Wait: 3 * time.Second}).Acquire(outer.Context(), agents.ID(i))
			for errors.Is(err, advisory.ErrUnavailable) { // a busy machine made no second connection in time
				_, err = l.With(advisory.Options{Wait: 3 * time.Second}).Acquire(outer.Context(), agents.ID(i))
			}
			errs <- err
		}
		go wait(a, one, 2)
		go wait(b, two, 1)
		require.ErrorIs(t, <-errs, advisory.ErrTimeout)
		require.ErrorIs(t, <-errs, advisory.ErrTimeout)
		require.NoError(t, one.Release())
		require.NoError(t, two.Release())
	})
}

func TestANestedRequestOnAFullPoolFailsAtOnceAndNamesTheOuterLocks(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		a := w.open(advisory.Config{MaxConns: 2})
		one := w.acquire(a, 1)
		two, err := a.Acquire(one.Context(), entity(2))
		require.NoError(w, err)
		start := time.Now()
		for _, call := range []func() (*advisory.Lock, error){
			func() (*advisory.Lock, error) { return a.Acquire(two.Context(), entity(3)) },
			func() (*advisory.Lock, error) { return a.TryAcquire(two.Context(), entity(3)) },
			func() (*advisory.Lock, error) { return a.AcquireAll(two.Context(), entity(3), entity(4)) },
			func() (*advisory.Lock, error) { return a.AcquireSlot(two.Context(), entity(3), 1) },
		} {
			_, err := call()
			require.ErrorIs(w, err, advisory.ErrPoolExhausted)
			require.NotErrorIs(w, err, advisory.ErrHeld)
			require.NotErrorIs(w, err, advisory.ErrTimeout)
			e, ok := errors.AsType[*advisory.PoolExhaustedError](err)
			require.True(w, ok)
			assert.ElementsMatch(w, []namespace.Key{entity(1), entity(2)}, e.Outer)
			assert.Equal(w, 2, e.MaxConns)
		}
		assert.Zero(w, time.Since(start))
		w.release(two, one)
	})
}

func TestARequestOnAFullPoolWaitsForAConnection(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		a := w.open(advisory.Config{MaxConns: 1, Wait: time.Second})
		one := w.acquire(a, 1)
		start := time.Now()
		_, err := a.Acquire(w.Context(), entity(2))
		assert.Equal(w, time.Second, time.Since(start))
		require.ErrorIs(w, err, advisory.ErrPoolExhausted)
		require.ErrorIs(w, err, advisory.ErrTimeout)
		require.NotErrorIs(w, err, advisory.ErrHeld)
		e, ok := errors.AsType[*advisory.PoolExhaustedError](err)
		require.True(w, ok)
		assert.Equal(w, time.Second, e.Waited)
		assert.Empty(w, e.Outer)

		p := w.beginAcquire(w.Context(), a, 2)
		w.release(one)
		w.release(w.now(p))
	})
}

func TestAnUnavailableServerIsReportedToEverybodyWhoWaits(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		a := w.open(advisory.Config{MaxConns: 1})
		one := w.acquire(a, 1)
		first := w.beginAcquire(w.Context(), a, 2)
		second := w.beginAcquire(w.Context(), a, 2)
		w.server.SetUnavailable(errors.New("connection refused"))
		w.server.KillSessions()
		require.ErrorIs(w, one.Release(), advisory.ErrLost)
		for _, p := range []pending{first, second} {
			err := (<-p).err
			require.ErrorIs(w, err, advisory.ErrUnavailable)
			require.ErrorContains(w, err, "connection refused")
		}
		w.server.SetUnavailable(nil)
		w.release(w.acquire(a, 2))
	})
}

func TestAFullPoolDelaysNoRefusalAndNoTimeout(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		a, b := w.open(advisory.Config{MaxConns: 1}), w.open(advisory.Config{})
		lock := w.acquire(b, 1)
		first := w.beginAcquire(w.Context(), a, 1) // with the only connection
		start := time.Now()
		_, err := a.TryAcquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrHeld)
		assert.Zero(w, time.Since(start))
		_, err = a.With(advisory.Options{Wait: 5 * time.Millisecond}).Acquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrTimeout)
		assert.Equal(w, 5*time.Millisecond, time.Since(start))
		w.release(lock)
		w.release(w.now(first))
	})
}

// Both keys go back in one batch, and somebody waits for each: they may not go on with the
// one connection together.
func TestWaitersForTheKeysOfOneLockDoNotShareItsConnection(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		l, other := w.open(advisory.Config{HandOverBudget: -1}), w.open(advisory.Config{})
		both := w.now(w.beginAll(w.Context(), l, 1, 2))
		foreign := []pending{w.beginAcquire(w.Context(), other, 1), w.beginAcquire(w.Context(), other, 2)}
		p, q := w.beginAcquire(w.Context(), l, 1), w.beginAcquire(w.Context(), l, 2)
		w.release(both)
		for _, f := range foreign {
			lock := w.now(f)
			bubble.Sleep(2 * time.Second)
			w.release(lock)
		}
		one, two := w.granted(p), w.granted(q)
		assert.NotEqual(w, one.PID(), two.PID())
		require.True(w, w.server.Kill(one.PID()))
		<-one.Lost()
		require.ErrorIs(w, one.Release(), advisory.ErrLost)
		w.release(two)
	})
}

func TestNestedLocksOnAFullPoolFailAtOnce(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		l := open(t, advisory.Config{DSN: pgtest.DSN(t), MaxConns: 1, Wait: advisory.NoTimeout})
		err := l.Do(t.Context(), agents.ID(1), func(ctx context.Context) error {
			err := l.Do(ctx, agents.ID(2), func(context.Context) error { return nil })
			require.ErrorIs(t, err, advisory.ErrPoolExhausted)
			exhausted, ok := errors.AsType[*advisory.PoolExhaustedError](err)
			require.True(t, ok)
			require.Equal(t, "agent/1", exhausted.Outer[0].String())
			_, err = l.AcquireAll(ctx, agents.ID(2), agents.ID(3))
			require.ErrorIs(t, err, advisory.ErrPoolExhausted)
			return ctx.Err()
		})
		require.NoError(t, err)
		all, err := l.AcquireAll(t.Context(), agents.ID(3), agents.ID(2))
		require.NoError(t, err, "several keys need one connection")
		require.NoError(t, all.Release())
	})
}

func TestAFullPoolIsNotCalledAHeldLock(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		l := open(t, advisory.Config{DSN: pgtest.DSN(t), MaxConns: 1})
		lock, err := l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		_, err = l.With(advisory.Options{Wait: 20 * time.Millisecond}).Acquire(t.Context(), agents.ID(2))
		require.ErrorIs(t, err, advisory.ErrPoolExhausted)
		require.ErrorIs(t, err, advisory.ErrTimeout)
		require.NotErrorIs(t, err, advisory.ErrHeld)
		require.NoError(t, lock.Release())
	})
}

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
		bubble.Sleep(time.Second)
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
		bubble.Sleep(time.Minute)
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
		bubble.Sleep(30 * time.Millisecond)
		one := w.beginAcquire(w.Context(), l, 1) // nobody waits where a lock is younger than 100 ms: it is polled
		bubble.Sleep(80 * time.Millisecond)
		two := w.beginAcquire(w.Context(), l, 2)
		bubble.Sleep(time.Second)
		w.assertWaits(one)
		w.assertWaits(two)
		w.release(foreign...)
		w.release(w.granted(one), w.granted(two))
		w.release(own...)
	})
}

func TestATryWhosePooledSessionHadDiedStillWaitsForNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		w.release(w.acquire(a, 2)) // leaves a session in the pool
		w.server.KillSessions()
		foreign := w.acquire(b, 1)
		start := time.Now()
		ran, err := a.DoOrSkip(w.Context(), entity(1), nothing)
		require.NoError(w, err)
		assert.False(w, ran)
		assert.Zero(w, time.Since(start))
		w.release(foreign)
	})
}

// All connections are full, or wait. The wait is interrupted, not the new lock held up.
func TestAWaitLeavesItsConnectionToALockThatHasNone(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 2, func(w *world) {
		l, other := w.open(advisory.Config{MaxConns: 1, Wait: time.Hour}), w.open(advisory.Config{})
		foreign := w.acquire(other, 1)
		waiter := w.beginAcquire(w.Context(), l, 1)
		outer, second := w.acquire(l, 2), w.acquire(l, 3)
		bubble.Sleep(time.Second)
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

func TestOneWhoWaitsForAConnectionCanLeave(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		a := w.open(advisory.Config{MaxConns: 1})
		one := w.acquire(a, 1)
		ctx, cancel := context.WithCancelCause(w.Context())
		leaver := w.beginAcquire(ctx, a, 2)
		behind := w.beginAcquire(w.Context(), a, 2) // needs the same connection
		hurried, done := context.WithTimeout(w.Context(), time.Second)
		defer done()
		late := w.beginAcquire(hurried, a, 2)
		gone := errors.New("gone")
		cancel(gone)
		require.ErrorIs(w, (<-leaver).err, gone)
		err := (<-late).err
		require.ErrorIs(w, err, advisory.ErrPoolExhausted)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		w.assertWaits(behind)
		w.release(one)
		w.release(w.now(behind))
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

func TestANestedRequestDoesNotWaitBehindOneThatWaitsForAConnection(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		a := w.open(advisory.Config{MaxConns: 1})
		one := w.acquire(a, 1)
		p := w.beginAcquire(w.Context(), a, 2)
		_, err := a.Acquire(one.Context(), entity(2))
		require.ErrorIs(w, err, advisory.ErrPoolExhausted)
		w.release(one)
		w.release(w.now(p))
	})
}
