package shared_test

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

// A hooked store runs something before or after operations.
type hooked struct {
	lease.Store
	beforeAcquire func(lease.AcquireRequest)
	beforeRelease func(lease.Claim)
	afterRelease  func(lease.Claim) error
}

func (h hooked) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	if h.beforeAcquire != nil {
		h.beforeAcquire(r)
	}
	return h.Store.Acquire(ctx, r)
}

func (h hooked) Release(ctx context.Context, c lease.Claim) error {
	if h.beforeRelease != nil {
		h.beforeRelease(c)
	}
	err := h.Store.Release(ctx, c)
	if err == nil && h.afterRelease != nil {
		err = h.afterRelease(c)
	}
	return err
}

func slotOf(name string) int {
	_, slot, _ := shared.ParseName(name)
	return slot
}

func TestAReaderThatIsPausedAtTheGateIsNotBesideTheWriterThatCameMeanwhile(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "k"} {
		synctest.Test(t, func(t *testing.T) {
			store := leasetest.NewStore()
			other := locker(t, store)
			w := ask("writer", 0)
			w.Exclusive = true
			var writer shared.Share
			paused := hooked{Store: store, beforeAcquire: func(r lease.AcquireRequest) {
				if slotOf(r.Name) > 0 && writer.ID == "" {
					bubble.Sleep(shared.DefaultGateTTL)
					writer = acquire(t, other, w, 0)
				}
			}}
			r := ask("reader", 0)
			r.IdempotencyKey = key
			_, err := locker(t, paused).Acquire(t.Context(), r, 0)
			require.ErrorIs(t, err, lease.ErrHeld)
			record, err := store.Get(t.Context(), shared.SlotName("job", 1))
			require.NoError(t, err)
			assert.Equal(t, key != "", record.State == lease.Held, "with a key another sending can have it")
			require.NoError(t, store.Release(t.Context(), writer.Claim))
			reader := acquire(t, other, r, 0)
			assert.Greater(t, reader.Fence, writer.Fence)
			assert.Equal(t, 1, reader.Slot)
		})
	}
}

func TestAWriterThatIsPausedAtTheGateIsNotBesideTheReaderThatCameMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		other := locker(t, store)
		var reader shared.Share
		paused := renewing{Store: store, before: func() {
			if reader.ID == "" {
				bubble.Sleep(shared.DefaultGateTTL)
				reader = acquire(t, other, ask("reader", 0), 0)
			}
		}}
		w := ask("writer", 0)
		w.Exclusive = true
		_, err := locker(t, paused).Acquire(t.Context(), w, 0)
		require.ErrorIs(t, err, lease.ErrHeld)
		again, err := store.Get(t.Context(), reader.Name)
		require.NoError(t, err)
		assert.Equal(t, lease.Held, again.State)
		_, err = other.Acquire(t.Context(), ask("reader 2", 0), 0)
		require.NoError(t, err, "the writer has let others in")
	})
}

type renewing struct {
	lease.Store
	before func()
}

func (r renewing) Renew(ctx context.Context, q lease.RenewRequest) (lease.Lease, error) {
	r.before()
	return r.Store.Renew(ctx, q)
}

func TestAWriterEndsALeaseThatHasExpiredBeforeItIsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		l := locker(t, store)
		r := ask("reader", 0)
		r.TTL = time.Second
		reader := acquire(t, l, r, 0)
		bubble.Sleep(time.Second)
		w := ask("writer", 0)
		w.Exclusive = true
		acquire(t, l, w, 0)
		_, err := store.Renew(t.Context(), lease.RenewRequest{Claim: reader.Claim, TTL: time.Second})
		require.ErrorIs(t, err, lease.ErrStale, "an expired lease alone could be renewed by one who began in time")
	})
}

func TestAnAnswerToAReleaseOfTheGateThatIsLostLosesNoShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := 0
		store := hooked{Store: leasetest.NewStore(), afterRelease: func(lease.Claim) error {
			if lost++; lost < 3 {
				return errors.New("connection reset")
			}
			return nil
		}}
		s := acquire(t, locker(t, store), ask("a", 1), 0)
		assert.Equal(t, 1, s.Slot)
		assert.Equal(t, 3, lost)
	})
}

func TestAnExclusiveRequestThatGivesUpLetsOthersIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := locker(t, leasetest.NewStore())
		acquire(t, l, ask("reader", 0), 0)
		w := ask("writer", 0)
		w.Exclusive = true
		_, err := l.Acquire(t.Context(), w, 3*shared.DefaultGateTTL)
		require.ErrorIs(t, err, lease.ErrHeld)
		acquire(t, l, ask("reader 2", 0), 0)

		w.IdempotencyKey = "j"
		_, err = l.Acquire(t.Context(), w, 0)
		require.ErrorIs(t, err, lease.ErrHeld)
		_, err = l.Acquire(t.Context(), ask("reader 2", 0), 0)
		require.NoError(t, err, "it did not wait, and kept nobody out")

		w.IdempotencyKey = "k" // it may come back
		_, err = l.Acquire(t.Context(), w, 3*shared.DefaultGateTTL)
		require.ErrorIs(t, err, lease.ErrHeld)
		_, err = l.Acquire(t.Context(), ask("reader 3", 0), 0)
		require.ErrorIs(t, err, lease.ErrHeld)
		bubble.Sleep(shared.DefaultGateTTL)
		acquire(t, l, ask("reader 3", 0), 0)
	})
}

func TestARequestWhoseContextEndsLeavesTheGateAndItsSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		ctx, cancel := context.WithCancel(t.Context())
		ending := hooked{Store: store, beforeRelease: func(lease.Claim) { cancel() }}
		_, err := locker(t, ending).Acquire(ctx, ask("a", 1), 0)
		require.ErrorIs(t, err, context.Canceled)
		s := acquire(t, locker(t, store), ask("b", 1), 0)
		assert.Equal(t, 1, s.Slot)

		ctx, cancel = context.WithTimeout(t.Context(), time.Minute-time.Second)
		defer cancel()
		_, err = locker(t, store).Acquire(ctx, ask("c", 1), -1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, store.Release(t.Context(), s.Claim))
		acquire(t, locker(t, store), ask("d", 1), 0)
	})
}

// A slow store takes a time for each operation, and carries it out at the end.
type slow struct {
	lease.Store
	takes      time.Duration
	refuses    bool // it refuses to renew gates
	operations *atomic.Int32
}

func (s slow) pass() {
	s.operations.Add(1)
	bubble.Sleep(s.takes)
}

func (s slow) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	s.pass()
	return s.Store.Acquire(ctx, r)
}

func (s slow) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	s.pass()
	if s.refuses && slotOf(r.Name) == 0 {
		return lease.Lease{}, errors.New("no")
	}
	return s.Store.Renew(ctx, r)
}

func (s slow) Release(ctx context.Context, c lease.Claim) error {
	s.pass()
	return s.Store.Release(ctx, c)
}

func (s slow) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	s.pass()
	return s.Store.List(ctx, r)
}

// The operations of one passage together take longer than the gate's usual TTL. They are: the acquire
// of the gate, the list, the acquire of the slot, the release of the gate, and the renewal that
// records the fence. The gate's renewal runs beside one of them.
func TestAShareOfASlowStoreTakesFiveOperations(t *testing.T) {
	t.Parallel()
	const takes = 1800 * time.Millisecond
	for name, refuses := range map[string]bool{"the gate is renewed": false, "control: it cannot be renewed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := slow{Store: leasetest.NewStore(), takes: takes, refuses: refuses, operations: new(atomic.Int32)}
				l := locker(t, store)
				acquire := func(key string) (took time.Duration, operations int) {
					r := ask("reader", 2)
					r.IdempotencyKey = key
					began, before := time.Now(), store.operations.Load()
					acquire(t, l, r, 0)
					return time.Since(began), int(store.operations.Load() - before)
				}
				took, operations := acquire("first")
				if refuses {
					assert.Greater(t, took, 5*takes)
					return
				}
				assert.Equal(t, 5*takes, took)
				assert.Equal(t, 6, operations)
				took, operations = acquire("second") // its gate lasts long enough from the start
				assert.Equal(t, 5*takes, took)
				assert.Equal(t, 5, operations)
			})
		})
	}
}
