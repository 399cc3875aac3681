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

func (w *world) beginSlot(ctx context.Context, l *advisory.Locker, n int) pending {
	return w.begin(func() (*advisory.Lock, error) { return l.AcquireSlot(ctx, entity(1), n) })
}

func TestASemaphoreHasNSlotsInAllProcesses(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				lockers := []*advisory.Locker{w.open(advisory.Config{}), w.open(advisory.Config{})}
				var slots []*advisory.Lock
				for i := range n {
					slots = append(slots, w.now(w.beginSlot(w.Context(), lockers[i%2], n)))
				}
				assert.Len(w, w.server.Locked(), n)
				var waiters []pending
				for i := range 6 {
					waiters = append(waiters, w.beginSlot(w.Context(), lockers[i%2], n))
				}
				bubble.Sleep(time.Second)
				for _, p := range waiters {
					w.assertWaits(p)
				}
				served := make(chan *advisory.Lock)
				for _, p := range waiters {
					go func() {
						o := <-p
						assert.NoError(w, o.err)
						served <- o.lock
					}()
				}
				for range waiters { // one goes, one comes
					w.release(slots[0])
					slots = append(slots[1:], <-served)
				}
				w.release(slots...)
				synctest.Wait()
				assert.Empty(w, w.server.Locked())
			})
		})
	}
}

func TestAMutexAndASemaphoreOnOneKeyHaveNothingToDoWithEachOther(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		mutex := w.acquire(a, 1)
		slot, err := a.AcquireSlot(mutex.Context(), entity(1), 1)
		require.NoError(w, err)
		_, err = a.AcquireSlot(slot.Context(), entity(1), 2)
		require.ErrorIs(w, err, advisory.ErrReentrant)
		_, err = a.Acquire(slot.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrReentrant)
		w.release(slot, mutex)
	})
}

func TestAWaiterForASlotThatLeavesLeavesNothing(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	for _, position := range []int{0, 1} { // in the turnstile, and before it
		t.Run(fmt.Sprint(position), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
				slot := w.now(w.beginSlot(w.Context(), b, 1))
				contexts := []context.Context{w.Context(), w.Context()}
				ctx, cancel := context.WithCancelCause(w.Context())
				contexts[position] = ctx
				var waiters []pending
				for _, ctx := range contexts {
					waiters = append(waiters, w.beginSlot(ctx, a, 1))
				}
				bubble.Sleep(time.Second)
				cancel(enough)
				require.ErrorIs(w, (<-waiters[position]).err, enough)
				w.release(slot)
				w.release(w.granted(waiters[1-position]))
				synctest.Wait()
				assert.Empty(w, w.server.Locked())
			})
		})
	}
}

func TestAWaitForASlotEndsInTimeAndNamesTheSemaphore(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{Wait: time.Second})
		slot := w.now(w.beginSlot(w.Context(), a, 1))
		start := time.Now()
		inside, before := w.beginSlot(w.Context(), a, 1), w.beginSlot(w.Context(), a, 1)
		for _, p := range []pending{inside, before} {
			o := <-p
			require.ErrorIs(w, o.err, advisory.ErrTimeout)
			require.ErrorIs(w, o.err, advisory.ErrHeld)
			e, ok := errors.AsType[*advisory.TimeoutError](o.err)
			require.True(w, ok)
			assert.Equal(w, entity(1), e.Key)
			assert.Equal(w, 1, e.Slots)
			assert.Nil(w, e.Holder)
			if assert.Len(w, e.Holders, 1) {
				assert.True(w, e.Holders[0].Local)
			}
			assert.InDelta(w, time.Second, o.at.Sub(start), float64(20*time.Millisecond))
		}
		w.release(slot)
	})
}

func TestAWaitForASlotThatAnotherTimeoutEndedIsNotTakenForOne(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		slot := w.now(w.beginSlot(w.Context(), a, 1))
		other := &advisory.TimeoutError{Key: entity(2)}
		for range 2 { // in the turnstile, and before it
			ctx, cancel := context.WithCancelCause(w.Context())
			waiting := w.beginSlot(ctx, a, 1)
			bubble.Sleep(time.Second)
			cancel(other)
			o := <-waiting
			require.ErrorIs(w, o.err, other)
			require.ErrorContains(w, o.err, "waiting for lock agent/1")
			assert.Zero(w, other.Slots)
		}
		w.release(slot)
	})
}

func TestASlotThatThisProcessReleasesGoesToItsOwnWaiterAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l := w.open(advisory.Config{MaxConns: 4})
		slot, err := l.AcquireSlot(w.Context(), entity(1), 1)
		require.NoError(w, err)
		for range 20 {
			p := w.begin(func() (*advisory.Lock, error) { return l.AcquireSlot(w.Context(), entity(1), 1) })
			bubble.Sleep(time.Second)
			start := time.Now()
			w.release(slot)
			slot = w.granted(p)
			assert.Equal(w, start, time.Now(), "not at its next look")
		}
		w.release(slot)
	})
}
