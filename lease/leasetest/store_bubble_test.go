package leasetest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestALeaseEndsToTheNanosecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		acquire := func(holder string) error {
			_, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: holder, TTL: time.Hour, LockDelay: time.Minute})
			return err
		}
		require.NoError(t, acquire("a"))
		time.Sleep(time.Hour - 1)
		record, err := store.Get(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, lease.Held, record.State)
		assert.Equal(t, time.Nanosecond, record.Remaining)
		time.Sleep(time.Nanosecond)
		record, err = store.Get(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, lease.Expired, record.State)
		assert.Equal(t, time.Minute, record.AvailableIn)
		time.Sleep(time.Minute - 1)
		require.ErrorIs(t, acquire("b"), lease.ErrHeld)
		time.Sleep(time.Nanosecond)
		require.NoError(t, acquire("b"))
	})
}

func TestASweepKeepsANameForAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		l, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: 2 * time.Hour})
		require.NoError(t, err)
		require.NoError(t, store.Release(t.Context(), l.Claim))
		time.Sleep(lease.DefaultRetention - 1)
		result, err := store.Sweep(t.Context(), lease.SweepRequest{})
		require.NoError(t, err)
		require.Zero(t, result)
		time.Sleep(time.Nanosecond)
		result, err = store.Sweep(t.Context(), lease.SweepRequest{})
		require.NoError(t, err)
		require.Equal(t, lease.SweepResult{Removed: 1}, result)
	})
}
