package etcd_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// serving is the role of a process that is a lock server.
const serving = "lock server"

// A lockServerConfig is what a process needs to be one.
type lockServerConfig struct {
	Address   string
	Endpoints []string
}

// serveLocks is a lock server until it is killed.
func serveLocks(ctx context.Context, config lockServerConfig) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends, however it does
		os.Exit(0)
	}()
	store, err := etcd.Open(ctx, etcd.Config{Client: clientv3.Config{Endpoints: config.Endpoints}})
	if err != nil {
		return err
	}
	s, err := leaseserver.New(leaseserver.Config{Store: store})
	if err != nil {
		return err
	}
	go s.Monitor(ctx)
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", config.Address)
	if err != nil {
		return err
	}
	return http.Serve(l, s.Handler()) //nolint:gosec // for a test
}

// startLockServer starts one at a URL, and returns what ends it as kill -9 does.
func startLockServer(t *testing.T, url string, endpoints []string) (kill func()) {
	t.Helper()
	p := proctest.Start(t, proctest.As(t, serving, lockServerConfig{strings.TrimPrefix(url, "http://"), endpoints}))
	client := http.Client{Timeout: time.Second}
	eventually(t, func() bool {
		r, err := client.Get(url + "/readyz")
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusNoContent
	}, "the lock server does not start")
	return p.Kill
}

// Who has both servers among its BaseURLs is served again soon after one of them, or etcd's
// leader, was killed. How soon is printed.
func TestClientsOfTwoLockServersAreServedAgainAfterAKill(t *testing.T) {
	t.Parallel()
	c := &cluster{t: t, members: etcdtest.StartCluster(t, t.TempDir(), 3)}
	c.leader() // until then no lock server starts
	var endpoints []string
	for _, m := range c.members {
		endpoints = append(endpoints, m.Address)
	}
	urls := []string{etcdtest.FreeURL(t), etcdtest.FreeURL(t)}
	kills := []func(){startLockServer(t, urls[0], endpoints), startLockServer(t, urls[1], endpoints)}

	const clients = 8
	var began [clients]atomic.Int64 // when the last cycle that was completed had begun, as time since start
	start := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i := range clients {
		client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: urls})
		require.NoError(t, err)
		defer client.Close()
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				at := time.Since(start)
				l, err := client.Acquire(ctx, lease.AcquireRequest{Name: fmt.Sprintf("job-%d-%d", i, n), Holder: "a", TTL: time.Minute})
				if err == nil {
					err = client.Release(ctx, l.Claim)
				}
				if err == nil {
					began[i].Store(int64(at))
				}
			}
		})
	}
	// again waits until so many clients were served whose request began since then.
	again := func(since time.Duration) (first, all time.Duration) {
		t.Helper()
		c.eventually(func() bool {
			served := 0
			for i := range began {
				if time.Duration(began[i].Load()) > since {
					served++
				}
			}
			if served > 0 && first == 0 {
				first = time.Since(start) - since
			}
			return served == clients
		}, "not all are served again")
		return first, time.Since(start) - since
	}
	for round := range 3 {
		again(time.Since(start))
		used := round % 2 // all have gone over to the other one
		kills[used]()
		at := time.Since(start)
		first, all := again(at)
		t.Logf("kill -9 of the lock server that is used: the first of %d clients is served again after %v, all after %v", clients, first.Round(time.Millisecond), all.Round(time.Millisecond))
		kills[used] = startLockServer(t, urls[used], endpoints)

		leader := c.leader()
		again(time.Since(start))
		c.members[leader].Kill()
		at = time.Since(start)
		first, all = again(at)
		t.Logf("kill -9 of etcd's leader: the first is served again after %v, all after %v", first.Round(time.Millisecond), all.Round(time.Millisecond))
		c.members[leader].Start()
		c.leader()
	}
}
