package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/bubble"
)

func TestFiveHundredWaitersAreServedInOrderOfArrival(t *testing.T) {
	t.Parallel()
	for _, hold := range []time.Duration{0, time.Millisecond} { // within the budget, and far beyond it
		t.Run(hold.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				const n = 500
				a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
				first := w.acquire(a, 1)
				var served []int // guarded by the lock itself
				for i := range n {
					go func() {
						assert.NoError(w, a.Do(w.Context(), entity(1), func(context.Context) error {
							served = append(served, i)
							bubble.Sleep(hold)
							return nil
						}))
					}()
					synctest.Wait()
				}
				assert.Equal(w, n, a.Stats().Waiting)
				remote := w.beginAcquire(w.Context(), b, 1)
				w.release(first)
				w.release(w.granted(remote))
				w.release(w.acquire(b, 1)) // behind nobody's second turn
				bubble.Sleep(n * time.Millisecond)
				synctest.Wait()
				require.Len(w, served, n)
				assert.IsIncreasing(w, served)
				assert.Equal(w, int64(n+1), a.Stats().Acquired)
			})
		})
	}
}

func TestAWaiterThatLeavesAtAnyPositionKeepsTheOthersInOrder(t *testing.T) {
	t.Parallel()
	const n = 5
	for _, where := range []string{"this process", "another process"} {
		for leaver := range n {
			t.Run(fmt.Sprintf("held by %s, waiter %d leaves", where, leaver), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(w *world) {
					a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
					holder := a
					if where != "this process" {
						holder = b
					}
					first := w.acquire(holder, 1)
					ctx, cancel := context.WithCancelCause(w.Context())
					defer cancel(nil)
					var waiters []pending
					for i := range n {
						waiterCtx := w.Context()
						if i == leaver {
							waiterCtx = ctx
						}
						waiters = append(waiters, w.beginAcquire(waiterCtx, a, 1))
					}
					enough := errors.New("enough")
					cancel(enough)
					require.ErrorIs(w, (<-waiters[leaver]).err, enough)
					assert.Equal(w, n-1, a.Stats().Waiting)
					w.release(first)
					for i, p := range waiters {
						if i != leaver {
							w.release(w.now(p))
						}
					}
				})
			})
		}
	}
}

func TestAWaiterInheritsTheWaitOfTheOneBeforeIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b, c := w.open(advisory.Config{}), w.open(advisory.Config{}), w.open(advisory.Config{})
		first := w.acquire(b, 1)
		ctx, cancel := context.WithCancel(w.Context())
		leaver := w.beginAcquire(ctx, a, 1)
		heir := w.beginAcquire(w.Context(), a, 1)
		rival := w.beginAcquire(w.Context(), c, 1)
		cancel()
		require.ErrorIs(w, (<-leaver).err, context.Canceled)
		synctest.Wait() // until the heir waits in the leaver's place
		assert.Equal(w, 2, w.server.Waiters(entity(1)))
		w.release(first)
		lock := w.now(heir) // its process kept its place before the rival
		w.assertWaits(rival)
		w.release(lock)
		w.release(w.now(rival))
	})
}

func TestTheLastWaiterToLeaveLeavesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		first := w.acquire(b, 1)
		ctx, cancel := context.WithCancel(w.Context())
		one, two := w.beginAcquire(ctx, a, 1), w.beginAcquire(ctx, a, 1)
		assert.Equal(w, 1, w.server.Waiters(entity(1)), "one session waits for both")
		cancel()
		require.ErrorIs(w, (<-one).err, context.Canceled)
		require.ErrorIs(w, (<-two).err, context.Canceled)
		w.assertIdle(a) // at once: no time has passed
		assert.Zero(w, w.server.Waiters(entity(1)))
		w.release(first)
		assert.Empty(w, w.server.Locked())
	})
}

func TestACanceledContextTakesNoLock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		ctx, cancel := context.WithCancelCause(w.Context())
		cancel(errors.New("shutdown"))
		for _, call := range []func() (*advisory.Lock, error){
			func() (*advisory.Lock, error) { return a.Acquire(ctx, entity(1)) },
			func() (*advisory.Lock, error) { return a.TryAcquire(ctx, entity(1)) },
			func() (*advisory.Lock, error) { return a.AcquireAll(ctx, entity(1), entity(2)) },
			func() (*advisory.Lock, error) { return a.AcquireSlot(ctx, entity(1), 1) },
		} {
			_, err := call()
			require.ErrorContains(w, err, "shutdown")
		}
		assert.Zero(w, a.Stats().Sessions)
	})
}

func TestATryDoesNotOvertakeThoseWhoWait(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		reader, err := a.With(shared).Acquire(w.Context(), entity(1))
		require.NoError(w, err)
		writer := w.beginAcquire(w.Context(), b, 1)
		for _, l := range []*advisory.Locker{w.open(advisory.Config{}), b} {
			_, err = l.With(shared).TryAcquire(w.Context(), entity(1))
			require.ErrorIs(w, err, advisory.ErrHeld)
		}
		w.release(reader)
		w.release(w.now(writer))
	})
}

func TestALockPassesInsideTheProcessForTheBudgetOnly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		budget time.Duration
		want   string
	}{
		{"10 ms by default", 0, "aaabaaa"}, // three turns of 4 ms, then the other process
		{"6 ms", 6 * time.Millisecond, "aabaaaa"},
		{"never", -1, "abaaaaa"},
		{"an hour", time.Hour, "aaaaaab"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				a, b := w.open(advisory.Config{HandOverBudget: tt.budget}), w.open(advisory.Config{})
				order := make(chan byte, 9)
				turn := func(l *advisory.Locker, name byte) {
					go func() {
						assert.NoError(w, l.Do(w.Context(), entity(1), func(context.Context) error {
							order <- name
							bubble.Sleep(4 * time.Millisecond)
							return nil
						}))
					}()
					synctest.Wait()
				}
				turn(a, 'a')
				turn(b, 'b')
				for range 5 {
					turn(a, 'a')
				}
				var got []byte
				for range len(tt.want) {
					got = append(got, <-order)
				}
				assert.Equal(w, tt.want, string(got))
				bubble.Sleep(time.Second)
			})
		})
	}
}
