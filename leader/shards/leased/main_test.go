package leased_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/shards/leased"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const group = "tenants"

var (
	_ leased.Store        = lease.Store(nil)
	_ leased.WatchedStore = (*leasehttp.Client)(nil)
)

func newBackend(tb testing.TB, store leased.Store) *leased.Backend {
	tb.Helper()
	b, err := leased.New(store, leased.Config{Name: group})
	require.NoError(tb, err)
	return b
}
