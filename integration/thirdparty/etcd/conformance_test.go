package etcd_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/sharetest"
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

func TestLocksAreSharedInEtcd(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	var stores atomic.Int64
	sharetest.Run(t, sharetest.Harness{TTL: time.Second, New: func(t *testing.T) lease.Store {
		t.Helper()
		prefix := "shared/" + strconv.FormatInt(stores.Add(1), 10) + "/"
		return open(t, func(c *etcd.Config) { c.Prefix = prefix }, address)
	}})
}

// A TTL of less than a second becomes one of a whole second at least, and etcd ends leases some time after theirs.
func TestTheLoadFindsNoBrokenPromiseOnEtcd(t *testing.T) {
	t.Parallel()
	program := command(t)
	store := "etcd://" + strings.TrimPrefix(serve(t, etcdtest.Member{NoFsync: true}), "http://")
	stale := 0
	for round := 0; stale == 0 && round < 5; round++ { // a busy machine may not get as far in its time
		load := exec.CommandContext(t.Context(), program, "load", "--store", store, "--duration", "8s", "-o", "json",
			"--clients", "8", "--locks", "8", "--ttl", "300ms", "--heartbeats", "5", "--expire", "30")
		var says strings.Builder
		load.Stderr = &says
		out, err := load.Output()
		require.NoError(t, err, "%s%s", out, &says)
		var report struct {
			Counts struct {
				StaleRenewals int `json:"stale_renewals_refused"`
			}
		}
		require.NoError(t, json.Unmarshal(out, &report), string(out))
		stale = report.Counts.StaleRenewals
	}
	assert.Positive(t, stale, "some were left to expire")
}
