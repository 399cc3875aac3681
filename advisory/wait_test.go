package advisory_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/bubble"
)

func TestAWaitLastsForTheTimeoutOrTheOptionsWait(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		timeout, wait time.Duration
		want          time.Duration
	}{
		{"the default", 0, 0, 15 * time.Second},
		{"the Locker's Wait", 2 * time.Second, 0, 2 * time.Second},
		{"Options.Wait, shorter", 0, time.Second, time.Second},
		{"Options.Wait, longer", time.Second, time.Minute, time.Minute},
		{"Options.Wait in a Locker without a timeout", advisory.NoTimeout, time.Second, time.Second},
	} {
		for _, where := range []string{"this process", "another process"} {
			t.Run(tt.name+", held by "+where, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(w *world) {
					a, b := w.open(advisory.Config{Wait: tt.timeout}), w.open(advisory.Config{ApplicationName: "other"})
					holder := a
					if where != "this process" {
						holder = b
					}
					lock := w.acquire(holder, 1)
					start := time.Now()
					_, err := a.With(advisory.Options{Wait: tt.wait}).Acquire(w.Context(), entity(1))
					assert.Equal(w, tt.want, time.Since(start))
					require.ErrorIs(w, err, advisory.ErrTimeout)
					require.ErrorIs(w, err, advisory.ErrHeld)
					timeout, ok := errors.AsType[*advisory.TimeoutError](err)
					require.True(w, ok)
					assert.Equal(w, entity(1), timeout.Key)
					assert.Equal(w, tt.want, timeout.Waited)
					require.NotNil(w, timeout.Holder)
					assert.Equal(w, holder == a, timeout.Holder.Local)
					assert.Equal(w, w.pidOf(1), timeout.Holder.PID)
					if holder == a {
						assert.Contains(w, err.Error(), "Lock.Context")
						assert.Equal(w, start, timeout.Holder.Since)
					} else {
						assert.Equal(w, "other", timeout.Holder.ApplicationName)
						assert.Equal(w, start, timeout.Holder.SessionSince)
					}
					assert.Equal(w, int64(1), a.Stats().Timeouts)
					w.release(lock)
				})
			})
		}
	}
}

func TestWithoutATimeoutAWaitLastsUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	for _, l := range []struct {
		name    string
		timeout time.Duration
		options advisory.Options
	}{
		{"in the Config", advisory.NoTimeout, advisory.Options{}},
		{"in the Options", time.Second, advisory.Options{Wait: advisory.NoTimeout}},
	} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				a, b := w.open(advisory.Config{Wait: l.timeout}), w.open(advisory.Config{})
				lock := w.acquire(b, 1)
				ctx, cancel := context.WithCancel(w.Context())
				p := w.beginAcquire(ctx, a.With(l.options), 1)
				bubble.Sleep(time.Hour) // each wait step of 0.9 s is run
				w.assertWaits(p)
				assert.Equal(w, 1, w.server.Waiters(entity(1)))
				cancel()
				o := <-p
				require.ErrorIs(w, o.err, context.Canceled)
				require.NotErrorIs(w, o.err, advisory.ErrTimeout)
				w.release(lock)
			})
		})
	}
}

func TestAWaitEndsAtTheContextsDeadlineWithItsCause(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		lock := w.acquire(b, 1)
		cause := errors.New("budget of the request")
		ctx, cancel := context.WithTimeoutCause(w.Context(), time.Second, cause)
		defer cancel()
		start := time.Now()
		_, err := a.Acquire(ctx, entity(1))
		assert.Equal(w, time.Second, time.Since(start))
		for _, want := range []error{advisory.ErrTimeout, advisory.ErrHeld, cause} {
			require.ErrorIs(w, err, want)
		}
		require.ErrorContains(w, err, "budget of the request")
		w.release(lock)
	})
}

func TestACanceledWaitReturnsAtOnceWithTheCause(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		lock := w.acquire(b, 1)
		ctx, cancel := context.WithCancelCause(w.Context())
		p := w.beginAcquire(ctx, a, 1)
		bubble.Sleep(time.Second)
		start, gone := time.Now(), errors.New("client gone")
		cancel(gone)
		o := <-p
		assert.Equal(w, start, o.at)
		require.ErrorIs(w, o.err, gone)
		require.NotErrorIs(w, o.err, advisory.ErrTimeout)
		require.NotErrorIs(w, o.err, advisory.ErrHeld)
		w.release(lock)
	})
}

func TestALongWaitIsGrantedAtTheRelease(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		lock := w.acquire(b, 1)
		p := w.beginAcquire(w.Context(), a, 1)
		bubble.Sleep(10*time.Second + 123*time.Millisecond)
		start := time.Now()
		w.release(lock)
		o := <-p
		require.NoError(w, o.err)
		assert.Equal(w, start, o.at)
		assert.Greater(w, a.Stats().WaitSteps, int64(10))
		w.release(o.lock)
	})
}

func TestDoOrSkipSkipsWhatAnotherHolds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		work := errors.New("work failed")
		fn := func(context.Context) error { return work }
		lock := w.acquire(a, 1)
		start := time.Now()
		for _, l := range []*advisory.Locker{a, b} {
			ran, err := l.DoOrSkip(w.Context(), entity(1), fn)
			require.NoError(w, err)
			assert.False(w, ran)
			assert.Equal(w, int64(1), l.Stats().Skips)
			assert.Zero(w, l.Stats().ReentrantSkips)
		}
		assert.Zero(w, time.Since(start))
		w.release(lock)
		ran, err := b.DoOrSkip(w.Context(), entity(1), fn)
		assert.True(w, ran)
		require.ErrorIs(w, err, work)
	})
}

func TestATryTellsWhoHolds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{ApplicationName: "billing"}), w.open(advisory.Config{})
		lock := w.acquire(a.With(shared), 1)
		for _, l := range []*advisory.Locker{a, b} {
			_, err := l.TryAcquire(w.Context(), entity(1))
			require.ErrorIs(w, err, advisory.ErrHeld)
			require.NotErrorIs(w, err, advisory.ErrTimeout)
			e, ok := errors.AsType[*advisory.HeldError](err)
			require.True(w, ok)
			require.NotNil(w, e.Holder)
			assert.Equal(w, l == a, e.Holder.Local)
			assert.Equal(w, "billing", e.Holder.ApplicationName)
			assert.True(w, e.Holder.Shared)
		}
		w.release(lock)
		w.release(w.now(w.begin(func() (*advisory.Lock, error) { return b.TryAcquire(w.Context(), entity(1)) })))
	})
}

func TestDoReleasesWhenItsFunctionPanics(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		assert.PanicsWithValue(w, "oops", func() {
			_ = a.Do(w.Context(), entity(1), func(context.Context) error { panic("oops") })
		})
		synctest.Wait()
		assert.Empty(w, w.server.Locked())
	})
}

func TestTheEndOfTheAcquisitionsContextDoesNotRelease(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		lock, err := w.open(advisory.Config{}).Acquire(ctx, entity(1))
		require.NoError(w, err)
		cancel()
		synctest.Wait()
		assert.Len(w, w.server.Holders(entity(1)), 1)
		require.ErrorIs(w, lock.Context().Err(), context.Canceled)
		w.release(lock)
	})
}

func TestAWaitOfTheLongestDurationDoesNotEnd(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l := w.open(advisory.Config{Wait: advisory.NoTimeout - 1})
		lock := w.acquire(l, 1)
		p := w.beginAcquire(w.Context(), l, 1)
		synctest.Wait()
		_, err := l.With(advisory.Options{Wait: time.Hour}).Acquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrTimeout, "the timer of all waits has fired")
		w.assertWaits(p)
		w.release(lock)
		w.release(w.granted(p))
	})
}

// Waits of all lengths are in one process: those that end soon, those that end late, and those that are canceled in between.
func TestWaitsOfAllLengthsEndAtTheirTimes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l := w.open(advisory.Config{})
		lock := w.acquire(l, 1)
		var waits sync.WaitGroup
		for i := range 300 {
			wait, canceled := time.Duration(i%100+1)*1700*time.Microsecond, i%3 == 0
			waits.Go(func() {
				bubble.Sleep(time.Duration(i%7) * 11 * time.Millisecond)
				ctx, cancel := context.WithCancel(w.Context())
				defer cancel()
				if canceled {
					time.AfterFunc(wait/2, cancel)
				}
				start := time.Now()
				_, err := l.With(advisory.Options{Wait: wait}).Acquire(ctx, entity(1))
				if canceled {
					assert.ErrorIs(w, err, context.Canceled)
					wait /= 2
				} else {
					assert.ErrorIs(w, err, advisory.ErrTimeout)
				}
				assert.Equal(w, wait, time.Since(start))
			})
		}
		waits.Wait()
		w.release(lock)
	})
}

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
			bubble.Sleep(300 * time.Millisecond)
			synctest.Wait()
		}
		assert.Len(w, queued, n, "everybody had a turn in the server's queue")
		before := l.Operations()
		bubble.Sleep(10 * time.Second)
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
		bubble.Sleep(time.Second)
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
			bubble.Sleep(2 * time.Second)
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

func TestACauseThatLooksLikeAHeldLockIsNoSkip(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		ctx, cancel := context.WithCancelCause(w.Context())
		cancel(&advisory.HeldError{Key: entity(9)}) // as an errgroup's first error does
		ran, err := a.DoOrSkip(ctx, entity(1), nothing)
		assert.False(w, ran)
		require.Error(w, err)
	})
}

func TestAContextAskedForAfterTheReleaseHasEnded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		lock := w.acquire(w.open(advisory.Config{}), 1)
		w.release(lock)
		require.ErrorIs(w, context.Cause(lock.Context()), advisory.ErrReleased)
	})
}

func TestALocksContextEndsWithItsRelease(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		lock := w.acquire(w.open(advisory.Config{}), 1)
		ctx := lock.Context()
		require.NoError(w, ctx.Err())
		w.release(lock)
		require.ErrorIs(w, context.Cause(ctx), advisory.ErrReleased)
		require.ErrorIs(w, lock.Release(), advisory.ErrReleased)
		select {
		case <-lock.Lost():
			assert.Fail(w, "a released lock is not lost")
		default:
		}
	})
}
