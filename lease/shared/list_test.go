package shared_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

func TestNamesOfOtherLocksHideNobodyFromAWriter(t *testing.T) {
	t.Parallel()
	for _, between := range []string{
		"job::slot::-%d",           // before all slots of the lock
		"job::slot::000::slot::%d", // after the ninth
		"job::slot::0001/%d",       // after the first
	} {
		store := leasetest.NewStore()
		l := locker(t, store)
		for range 12 {
			_, err := l.Acquire(t.Context(), ask("reader", 0), 0)
			require.NoError(t, err)
		}
		holders, err := l.Holders(t.Context(), "job")
		require.NoError(t, err)
		require.Len(t, holders, 12)
		for i := range 11 {
			require.NoError(t, store.Release(t.Context(), holders[i].Claim))
		}
		for i := range 3 * shared.MaxSlots {
			_, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: fmt.Sprintf(between, i), Holder: "other", TTL: lease.MaxTTL})
			require.NoError(t, err)
		}
		w := ask("writer", 0)
		w.Exclusive = true
		_, err = l.Acquire(t.Context(), w, 0)
		require.ErrorIs(t, err, lease.ErrHeld, between)
		holders, err = l.Holders(t.Context(), "job")
		require.NoError(t, err)
		assert.Len(t, holders, 1)
	}
}
