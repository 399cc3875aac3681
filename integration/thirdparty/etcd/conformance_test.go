package etcd_test

import (
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// quick is a heartbeat with which the shortest lease of etcd is one second.
const quick = 50 * time.Millisecond

func serve(tb testing.TB, m etcdtest.Member) string {
	tb.Helper()
	m.Dir, m.Heartbeat = filepath.Join(tb.TempDir(), "etcd"), quick
	address, stop, err := etcdtest.Serve(m)
	require.NoError(tb, err)
	tb.Cleanup(stop)
	return address
}

func TestTheStoreConforms(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	var stores atomic.Int64
	var prefixes sync.Map // by store
	another := func(t *testing.T, s lease.Store) lease.Store {
		t.Helper()
		prefix, _ := prefixes.Load(s)
		s = open(t, func(c *etcd.Config) { c.Prefix = prefix.(string) }, address)
		prefixes.Store(s, prefix)
		return s
	}
	leasetest.Run(t, leasetest.Harness{
		TTL:  time.Second,
		Race: leasetest.Contention{Clients: 20, Operations: 12, TTL: 4 * time.Second},
		New: func(t *testing.T) lease.Store {
			t.Helper()
			prefix := "conformance/" + strconv.FormatInt(stores.Add(1), 10) + "/"
			s := open(t, func(c *etcd.Config) { c.Prefix = prefix }, address)
			prefixes.Store(s, prefix)
			return s
		},
		Reopen: func(t *testing.T, s lease.Store) lease.Store {
			t.Helper()
			assert.NoError(t, s.(*etcd.Store).Close())
			return another(t, s)
		},
		Another: another,
	})
}
