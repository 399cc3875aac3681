package leased_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const name = "scheduler"

// ttl is long: what ends in a test does not end by it.
const ttl = time.Hour

var (
	_ leased.Store        = lease.Store(nil)
	_ leased.WaitingStore = (*leasehttp.Client)(nil)
)

func newBackend(tb testing.TB, store leased.Store) *leased.Backend {
	tb.Helper()
	b, err := leased.New(store, leased.Config{Name: name})
	require.NoError(tb, err)
	return b
}

// lead makes the backend the leader.
func lead(tb testing.TB, b *leased.Backend, identity string) {
	tb.Helper()
	won, err := b.TryAcquire(tb.Context(), identity, ttl)
	require.NoError(tb, err)
	require.True(tb, won)
}

// refused makes one attempt that somebody else's leadership refuses.
func refused(tb testing.TB, b *leased.Backend, identity string) {
	tb.Helper()
	won, err := b.TryAcquire(tb.Context(), identity, ttl)
	require.NoError(tb, err)
	require.False(tb, won)
}

func release(tb testing.TB, b leader.Backend) {
	tb.Helper()
	require.NoError(tb, b.Release(tb.Context(), ""))
}

// takeAway ends whoever's lease it is, as somebody with the right to do so can.
func takeAway(tb testing.TB, store leased.Store) {
	tb.Helper()
	record, err := store.Get(context.Background(), name)
	require.NoError(tb, err)
	if record.State == lease.Held {
		require.NoError(tb, store.Release(context.Background(), record.Claim))
	}
}
