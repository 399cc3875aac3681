package etcd_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/sharetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
)

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
