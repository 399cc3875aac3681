package bench

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// startEtcd starts an etcd with one member in this process, which calls fsync
// before it acknowledges, and returns clients of it.
func startEtcd(b *testing.B, clients int) []*clientv3.Client {
	b.Helper()
	c := embed.NewConfig()
	c.Dir = b.TempDir()
	c.LogLevel = "fatal"
	anyPort := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c.ListenPeerUrls = []url.URL{anyPort}
	c.ListenClientUrls = []url.URL{anyPort}
	server, err := embed.StartEtcd(c)
	require.NoError(b, err)
	b.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(time.Minute):
		require.Fail(b, "etcd does not start")
	}
	all := make([]*clientv3.Client, clients)
	for i := range all {
		all[i], err = clientv3.New(clientv3.Config{
			Endpoints:   []string{"http://" + server.Clients[0].Addr().String()},
			DialTimeout: time.Minute,
			Logger:      zap.NewNop(),
		})
		require.NoError(b, err)
		b.Cleanup(func() { _ = all[i].Close() })
	}
	return all
}

// etcdConnections is how many connections gave etcd most cycles per second.
const etcdConnections = 4

// newEtcd gives each worker a session of its own, as a process of its own would
// have, on one of the connections.
func newEtcd(b *testing.B) contender {
	b.Helper()
	clients := startEtcd(b, etcdConnections)
	c := contender{name: "etcd", cycles: make([]cycler, workers)}
	for i := range c.cycles {
		session, err := concurrency.NewSession(clients[i%etcdConnections], concurrency.WithTTL(60))
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
