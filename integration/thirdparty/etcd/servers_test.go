package etcd_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/leaseload"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// A fleet is lock servers on one cluster, as processes.
type fleet struct {
	t         *testing.T
	command   string
	store     string
	addresses []string
	processes []*proctest.Process
}

func newFleet(t *testing.T, n int, endpoint string) *fleet {
	t.Helper()
	f := &fleet{t: t, command: command(t), store: "etcd://" + strings.TrimPrefix(endpoint, "http://"), processes: make([]*proctest.Process, n)}
	for i := range n {
		f.addresses = append(f.addresses, clitest.Reserve(t))
		f.start(i)
	}
	return f
}

func (f *fleet) start(i int) {
	f.t.Helper()
	p := proctest.Start(f.t, proctest.Command(f.t, f.command, "serve", "locks", "-v", "--listen", f.addresses[i], "--store", f.store))
	p.Match(&p.Stderr, `msg=serving address=(\S+)`)
	f.processes[i] = p
}

// active waits until one of the servers other than but is active, and returns it.
func (f *fleet) active(but int) (active int) {
	f.t.Helper()
	client := http.Client{Timeout: time.Second}
	eventually(f.t, func() bool {
		for i, address := range f.addresses {
			if i == but {
				continue
			}
			answer, err := client.Get("http://" + address + "/metrics")
			if err != nil {
				continue
			}
			text, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if strings.Contains(string(text), "\nlock_server_active 1\n") {
				active = i
				return true
			}
		}
		return false
	}, "no server becomes active")
	return active
}

func (f *fleet) urls() (all []string) {
	for _, a := range f.addresses {
		all = append(all, "http://"+a)
	}
	return all
}

func (f *fleet) client(c leasehttp.ClientConfig) *leasehttp.Client {
	f.t.Helper()
	client, err := leasehttp.NewClient(c)
	require.NoError(f.t, err)
	f.t.Cleanup(client.Close)
	return client
}

// Clients work at three servers, of which the active one is killed, stopped for longer than it stays
// active, and restarted in order. All their answers together are legal.
func TestAHistoryOverThreeLockServersIsLegalWhileTheActiveOneDiesAndIsStopped(t *testing.T) {
	t.Parallel()
	rounds := soak.Size(t, 3, 64) // every other one is a kill
	f := newFleet(t, 3, serve(t, etcdtest.Member{NoFsync: true}))
	config := leaseload.Config{Prefix: "job", TTL: 4 * time.Second}
	for _, url := range f.urls() {
		for i := range 4 { // that resend nothing but half of the releases
			remote := leaseload.Remote{Client: f.client(leasehttp.ClientConfig{BaseURLs: []string{url}, Resends: -1}), Wait: time.Duration(i%2) * time.Second}
			if i < 2 {
				remote.Releaser = f.client(leasehttp.ClientConfig{BaseURLs: f.urls()})
			}
			config.Stores = append(config.Stores, remote)
		}
	}
	l := leaseload.Start(t, config)
	var gaps, successions []time.Duration
	fault := func(at int) (over func()) {
		began := time.Now()
		l.Await(20)
		gaps = append(gaps, time.Since(began).Round(time.Millisecond))
		return func() {
			f.active(at)
			successions = append(successions, time.Since(began).Round(time.Millisecond))
		}
	}
	kills := 0
	for round := range rounds {
		l.Await(50)
		at := f.active(-1)
		switch round % 4 {
		case 0, 3:
			kills++
			f.processes[at].Kill()
			fault(at)()
			f.start(at)
		case 1:
			f.processes[at].Signal(syscall.SIGSTOP)
			fault(at)()
			l.Await(20)
			f.processes[at].Signal(syscall.SIGCONT)
		case 2:
			f.processes[at].Signal(syscall.SIGTERM)
			require.Zero(t, f.processes[at].Wait())
			fault(at)()
			f.start(at)
		}
	}
	l.Await(100)
	l.AwaitOperations(soak.Size(t, 0, 10_000))
	t.Logf("%d faults of the active server, %d of them kills; 20 grants after %v, another one active after %v", rounds, kills, gaps, successions)
	l.RequireLegal(t.Context())
}

// Clients of all servers see no error while each server is restarted in turn.
func TestNoErrorReachesAClientWhileAllLockServersAreRestarted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, serve(t, etcdtest.Member{NoFsync: true}))
	clients := leaseload.StartSteady(t, f.urls(), 80)
	clients.Await(200)
	for i, p := range f.processes {
		p.Signal(syscall.SIGTERM)
		require.Zero(t, p.Wait())
		f.start(i)
		f.active(-1)
		clients.Await(200)
	}
	clients.RequireServed()
}

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

// command builds pglatch-etcd.
func command(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "pglatch-etcd")
	require.NoError(t, gobuild.Program(t.Context(), "../../../cmd/pglatch-etcd", program))
	return program
}

func TestTheCommandServesACluster(t *testing.T) {
	t.Parallel()
	program, dir := command(t), filepath.Join(t.TempDir(), "etcd")
	address, stop, err := etcdtest.Serve(etcdtest.Member{Dir: dir, TLS: true, NoFsync: true, Heartbeat: quick})
	require.NoError(t, err)
	t.Cleanup(stop)
	host, certificate := strings.TrimPrefix(address, "https://"), filepath.Join(dir, "fixtures", "client", "cert.pem")
	secret := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(secret, []byte("pa55\n"), 0o600))

	withUser(t, raw(t, clientv3.Config{Endpoints: []string{address}, TLS: trusting(t, certificate)}))
	p := proctest.Start(t, proctest.Command(t, program, "serve", "locks", "-v", "--listen", "127.0.0.1:0",
		"--store", "etcd://"+host+"?ca="+certificate+"&user=locks&password_file="+secret))
	served := p.Match(&p.Stderr, `msg=serving address=(\S+)`)[1]
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://" + served}})
	require.NoError(t, err)
	defer client.Close()
	l, err := client.Acquire(t.Context(), lease.AcquireRequest{Name: "brief", Holder: "a", TTL: 1500 * time.Millisecond})
	require.NoError(t, err)
	assert.Greater(t, l.Remaining, 1900*time.Millisecond, "whole seconds, rounded up")
	l, err = client.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Minute})
	require.NoError(t, err)
	_, err = client.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "b", TTL: time.Minute})
	require.ErrorIs(t, err, lease.ErrHeld)
	require.NoError(t, client.Release(t.Context(), l.Claim))
	p.Signal(syscall.SIGTERM)
	require.Zero(t, p.Wait())
	assert.Contains(t, p.Stderr.String(), "etcd:https://"+host)
	assert.NotContains(t, p.Stderr.String(), "pa55")
}

// trusting trusts one certificate.
func trusting(t *testing.T, file string) *tls.Config {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(content))
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// withUser turns authentication on: locks has the right to the prefix, nobody has none.
func withUser(t *testing.T, root *clientv3.Client) {
	t.Helper()
	ctx := t.Context()
	for _, f := range []func() error{
		func() error { _, err := root.RoleAdd(ctx, "root"); return err },
		func() error { _, err := root.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := root.RoleAdd(ctx, "locks"); return err },
		func() error {
			_, err := root.RoleGrantPermission(ctx, "locks", etcd.DefaultPrefix, clientv3.GetPrefixRangeEnd(etcd.DefaultPrefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := root.UserAdd(ctx, "locks", "pa55"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "locks", "locks"); return err },
		func() error { _, err := root.UserAdd(ctx, "nobody", "pa55"); return err },
		func() error { _, err := root.AuthEnable(ctx); return err },
	} {
		require.NoError(t, f())
	}
}
