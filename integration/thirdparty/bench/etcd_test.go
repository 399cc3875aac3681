package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/lease/etcd"
)

// startEtcd starts an etcd with one member in this process. It calls fsync before it
// acknowledges.
func startEtcd(b *testing.B) (address string) {
	b.Helper()
	address, stop, err := etcdtest.Serve(etcdtest.Member{Dir: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(stop)
	return address
}

// startCluster starts members as separate processes. They too call fsync before they acknowledge.
func startCluster(b *testing.B, size int) []*etcdtest.Process {
	b.Helper()
	return etcdtest.StartCluster(b, b.TempDir(), size)
}

func addresses(members []*etcdtest.Process) (all []string) {
	for _, m := range members {
		all = append(all, m.Address)
	}
	return all
}

// etcdConnections is the number of connections with which etcd made most cycles per second.
const etcdConnections = 4

// newEtcd gives each worker its own session, as a separate process would have, on one of
// the connections.
func newEtcd(b *testing.B, workers int, addresses ...string) contender {
	b.Helper()
	clients := make([]*clientv3.Client, min(etcdConnections, workers))
	for i := range clients {
		var err error
		clients[i], err = clientv3.New(clientv3.Config{Endpoints: addresses, DialTimeout: time.Minute, Logger: zap.NewNop()})
		require.NoError(b, err)
		b.Cleanup(func() { _ = clients[i].Close() })
	}
	c := contender{name: "etcd", cycles: make([]cycler, workers)}
	for i := range c.cycles {
		session, err := concurrency.NewSession(clients[i%len(clients)], concurrency.WithTTL(60))
		require.NoError(b, err)
		b.Cleanup(func() { _ = session.Close() })
		c.cycles[i] = func(ctx context.Context, lock string, held func()) error {
			m := concurrency.NewMutex(session, lock)
			if err := m.Lock(ctx); err != nil {
				return err
			}
			held()
			return m.Unlock(context.WithoutCancel(ctx))
		}
	}
	return c
}

// BenchmarkLeaseOnEtcd measures acquire and release cycles through a lock server in this
// process on an etcd cluster. It compares them with etcd's own lock on the same members, in
// turns of two seconds.
func BenchmarkLeaseOnEtcd(b *testing.B) {
	for _, members := range []int{1, 3} {
		addresses := addresses(startCluster(b, members))
		store, err := etcd.Open(b.Context(), etcd.Config{Client: clientv3.Config{Endpoints: addresses}})
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, store.Close()) })
		for _, clients := range []int{1, 8, 80} {
			b.Run(fmt.Sprintf("members=%d/clients=%d", members, clients), func(b *testing.B) { // at whose end its server ends, so that it is no other's peer
				contenders := []contender{newEtcd(b, clients, addresses...), newLockServer(b, "lockserver", clients, store)}
				for _, load := range loads {
					b.Run(load.name, func(b *testing.B) { takeTurns(b, contenders, load.hot) })
				}
			})
		}
	}
}
