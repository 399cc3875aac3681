package etcd_test

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/leaseload"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease/leasehttp"
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
