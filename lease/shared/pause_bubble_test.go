package shared_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
					time.Sleep(shared.DefaultGateTTL)
					var err error
					writer, err = other.Acquire(t.Context(), w, 0)
					require.NoError(t, err)
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
			reader, err := other.Acquire(t.Context(), r, 0)
			require.NoError(t, err)
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
				time.Sleep(shared.DefaultGateTTL)
				var err error
				reader, err = other.Acquire(t.Context(), ask("reader", 0), 0)
				require.NoError(t, err)
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
		reader, err := l.Acquire(t.Context(), r, 0)
		require.NoError(t, err)
		time.Sleep(time.Second)
		w := ask("writer", 0)
		w.Exclusive = true
		_, err = l.Acquire(t.Context(), w, 0)
		require.NoError(t, err)
		_, err = store.Renew(t.Context(), lease.RenewRequest{Claim: reader.Claim, TTL: time.Second})
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
		s, err := locker(t, store).Acquire(t.Context(), ask("a", 1), 0)
		require.NoError(t, err)
		assert.Equal(t, 1, s.Slot)
		assert.Equal(t, 3, lost)
	})
}

func TestAnExclusiveRequestThatGivesUpLetsOthersIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := locker(t, leasetest.NewStore())
		_, err := l.Acquire(t.Context(), ask("reader", 0), 0)
		require.NoError(t, err)
		w := ask("writer", 0)
		w.Exclusive = true
		_, err = l.Acquire(t.Context(), w, 3*shared.DefaultGateTTL)
		require.ErrorIs(t, err, lease.ErrHeld)
		_, err = l.Acquire(t.Context(), ask("reader 2", 0), 0)
		require.NoError(t, err)

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
		time.Sleep(shared.DefaultGateTTL)
		_, err = l.Acquire(t.Context(), ask("reader 3", 0), 0)
		require.NoError(t, err)
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
		s, err := locker(t, store).Acquire(t.Context(), ask("b", 1), 0)
		require.NoError(t, err)
		assert.Equal(t, 1, s.Slot)

		ctx, cancel = context.WithTimeout(t.Context(), time.Minute-time.Second)
		defer cancel()
		_, err = locker(t, store).Acquire(ctx, ask("c", 1), -1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, store.Release(t.Context(), s.Claim))
		_, err = locker(t, store).Acquire(t.Context(), ask("d", 1), 0)
		require.NoError(t, err)
	})
}
