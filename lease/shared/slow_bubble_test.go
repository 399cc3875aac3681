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

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A slow store takes a time for each operation, and carries it out at the end.
type slow struct {
	lease.Store
	takes      time.Duration
	refuses    bool // it refuses to renew gates
	operations *atomic.Int32
}

func (s slow) pass() {
	s.operations.Add(1)
	time.Sleep(s.takes)
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
					_, err := l.Acquire(t.Context(), r, 0)
					require.NoError(t, err)
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
