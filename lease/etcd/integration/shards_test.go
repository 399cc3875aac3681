package integration_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/leased"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
	"github.com/pglatch/pglatch/lease/etcd"
	"github.com/pglatch/pglatch/lease/etcd/integration/etcdtest"
)

// Each node has a store of its own, as each process has.
func TestShardsConform(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	var groups atomic.Int64
	shardstest.Run(t, shardstest.Harness{
		TTL:  3 * time.Second,
		Many: 30, // renewed 64 at a time, by a read, a message and a commit each
		New: func(t *testing.T) func() driver.Backend {
			t.Helper()
			name := "tenants-" + strconv.FormatInt(groups.Add(1), 10)
			return func() driver.Backend {
				b, err := leased.New(open(t, func(c *etcd.Config) { c.Prefix = name + "/" }, address), leased.Config{Name: name})
				require.NoError(t, err)
				return b
			}
		},
	})
}
