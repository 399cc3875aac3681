//go:build integration

package failover

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/leaseload"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/replay"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/internal/test/tally"
	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/postgres"
)

// ready is what a lock server answers to whom asks whether it can be used.
func ready(t *testing.T, address string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

func TestLockServersWithBothHostsServeOverThePromotionAndLoseNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t, "remote_apply")
	var addresses []string
	var all []lease.Store
	for range 2 {
		_, address := clitest.Serve(t, nil, "--store", p.dsn())
		addresses = append(addresses, address)
		for range clients / 2 {
			client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://" + address}, Resends: -1})
			require.NoError(t, err)
			t.Cleanup(client.Close)
			all = append(all, leaseload.Remote{Client: client})
		}
	}
	l := startLoad(t, all...)
	l.Await(enough)
	killed := time.Now()
	require.NoError(t, p.primary.Kill())
	for _, address := range addresses {
		await.Until(t, patience, func() bool { return ready(t, address) == http.StatusServiceUnavailable }, "without a primary a server is not ready")
	}
	p.promote()
	promoted, atPromotion := time.Now(), l.Granted()
	l.Await(1)
	served := time.Now()
	for _, address := range addresses {
		await.Until(t, patience, func() bool { return ready(t, address) == http.StatusNoContent }, "it goes on by itself")
	}
	l.Await(enough)
	l.Stop()
	t.Logf("granted before %d, after %d; the standby took writes %v after the kill, and the first lease was granted %v after that; %+v", atPromotion,
		l.Granted()-atPromotion, promoted.Sub(killed).Round(time.Millisecond), served.Sub(promoted).Round(time.Millisecond), l.History.Counts())
	l.RequireLegal(t.Context())
}

// Nobody looks by itself: who is woken at another server is woken by a message.
func TestLockServersHearEachOtherAfterThePromotion(t *testing.T) {
	t.Parallel()
	p := newPair(t, "remote_apply")
	var peers [2]servetest.Peer
	for i := range peers {
		store, err := postgres.New(postgres.Config{DSN: p.dsn()})
		require.NoError(t, err)
		t.Cleanup(store.Close)
		peers[i] = servetest.NewPeer(t, store, -1)
	}
	servetest.AwaitMessages(t, peers[0], peers[1])
	p.failOver()
	servetest.AwaitMessages(t, peers[0], peers[1])
	servetest.AwaitMessages(t, peers[1], peers[0])
}

// A fleet is lock servers on one database, as processes.
type fleet struct {
	t         *testing.T
	dsn       string
	addresses []string
	programs  []*clitest.Program
}

func newFleet(t *testing.T, n int) *fleet {
	t.Helper()
	f := &fleet{t: t, dsn: pgtest.DSN(t), programs: make([]*clitest.Program, n)}
	for i := range n {
		f.addresses = append(f.addresses, clitest.Reserve(t))
		f.start(i)
	}
	return f
}

func (f *fleet) start(i int) {
	f.t.Helper()
	p := clitest.Start(f.t, nil, "serve", "locks", "--listen", f.addresses[i], "--store", f.dsn)
	p.Match(&p.Stderr, `msg=serving.* address=(\S+)`)
	f.programs[i] = p
}

// active waits until one of the servers other than but is active, and returns it.
func (f *fleet) active(but int) (active int) {
	f.t.Helper()
	client := http.Client{Timeout: time.Second}
	await.Until(f.t, patience, func() bool {
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

// counting counts the batches that a client sends.
type counting struct {
	http.RoundTripper
	batches *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/v1/batch" {
		c.batches.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// Clients work at three servers, of which the active one is killed, stopped for longer than it stays
// active, and restarted in order. Some of them share a client, and so their requests. All their
// answers together are legal.
func TestAHistoryOverThreeLockServersIsLegalWhileTheActiveOneDiesAndIsStopped(t *testing.T) {
	t.Parallel()
	rounds := soak.Size(t, 4, 64) // every other one is a kill
	f := newFleet(t, 3)
	run := replay.Start(t, "leases")
	config := leaseload.Config{Prefix: "job", TTL: 2 * time.Second, Trace: run.Writer()}
	var batches atomic.Int64
	shared := f.client(leasehttp.ClientConfig{
		BaseURLs: f.urls()[:1], Resends: -1, HTTPClient: &http.Client{Transport: counting{http.DefaultTransport.(*http.Transport).Clone(), &batches}},
	})
	for range 7 { // more calls with unknown outcomes at a time would make the check slow
		config.Stores = append(config.Stores, leaseload.Remote{Client: shared})
	}
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
	kills := 0
	for round := range rounds {
		l.Await(50)
		at := f.active(-1)
		ends := run.Fault(f.addresses[at], [...]string{"killed", "suspended", "restarted", "killed"}[round%4])
		switch round % 4 {
		case 0, 3:
			kills++
			f.programs[at].Kill()
			l.Await(20)
			f.active(at)
			f.start(at)
		case 1:
			f.programs[at].Signal(syscall.SIGSTOP)
			l.Await(20)
			f.active(at)
			l.Await(20)
			f.programs[at].Signal(syscall.SIGCONT)
		case 2:
			f.programs[at].Signal(syscall.SIGTERM)
			require.Zero(t, f.programs[at].Wait())
			l.Await(20)
			f.active(at)
			f.start(at)
		}
		ends()
	}
	l.Await(100)
	l.AwaitOperations(soak.Size(t, 0, 10_000))
	t.Logf("%d faults of the active server, %d of them kills; %d batches", rounds, kills, batches.Load())
	tally.Faults(t, tally.Fault{Name: "active server killed", Times: kills})
	tally.Faults(t, tally.Fault{Name: "active server stopped or restarted", Times: rounds - kills})
	l.RequireLegal(t.Context())
	run.RequireLegal(trace.LeaseAcquire, trace.LeaseRenew, trace.LeaseRelease)
	assert.Positive(t, batches.Load())
}

// Clients of all servers see no error while each server is restarted in turn.
func TestNoErrorReachesAClientWhileAllLockServersAreRestarted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	clients := leaseload.StartSteady(t, f.urls(), 80)
	clients.Await(200)
	for i := range f.programs {
		f.programs[i].Signal(syscall.SIGTERM)
		require.Zero(t, f.programs[i].Wait())
		f.start(i)
		f.active(-1)
		clients.Await(200)
	}
	clients.RequireServed()
}
