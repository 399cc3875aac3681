package etcd_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/lease/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestMain(m *testing.M) {
	etcdtest.Main()
	proctest.Play(serving, serveLocks)
	electiontest.Main(map[string]electiontest.Role{"etcd": standOnEtcd})
	os.Exit(m.Run())
}

// open opens a store; configure may be nil.
func open(tb testing.TB, configure func(*etcd.Config), endpoints ...string) *etcd.Store {
	tb.Helper()
	c := etcd.Config{Client: clientv3.Config{Endpoints: endpoints}}
	if configure != nil {
		configure(&c)
	}
	s, err := etcd.Open(tb.Context(), c)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, s.Close()) })
	return s
}
