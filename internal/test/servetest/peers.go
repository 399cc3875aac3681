package servetest

import (
	"context"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// A Peer is one lock server of several on one store.
type Peer struct {
	Server   *leaseserver.Server
	HTTP     *httptest.Server
	Client   *leasehttp.Client // of this server alone
	Election *Election
	Stop     context.CancelFunc // of its Monitor
}

// An Election is what one server believes about who is active: nobody, at first.
type Election struct {
	mu      sync.Mutex
	own     string
	active  string
	process string
	changed chan struct{}
}

// NewElection returns one.
func NewElection() *Election { return &Election{changed: make(chan struct{})} }

// Active implements leaseserver.Election.
func (e *Election) Active() (url string, self bool, changed <-chan struct{}) {
	url, _, self, changed = e.ActiveProcess()
	return url, self, changed
}

// ActiveProcess implements leaseserver.IdentifyingElection. The process is "" unless BelieveProcess was called.
func (e *Election) ActiveProcess() (url, process string, self bool, changed <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active, e.process, e.active == e.own && e.own != "", e.changed
}

// Believe makes the server believe that the one at url is active.
func (e *Election) Believe(url string) { e.BelieveProcess(url, "") }

// BelieveProcess makes the server believe that this process at url is active.
func (e *Election) BelieveProcess(url, process string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active, e.process = url, process
	close(e.changed)
	e.changed = make(chan struct{})
}

// NewPeer starts a peer that polls at this interval, never if it is negative. Nobody is active.
func NewPeer(tb testing.TB, store lease.Store, poll time.Duration) Peer {
	tb.Helper()
	return NewPeerOf(tb, leaseserver.Config{Store: store, PollInterval: poll})
}

// NewPeerOf starts a peer.
func NewPeerOf(tb testing.TB, c leaseserver.Config) Peer {
	tb.Helper()
	e := NewElection()
	c.Peers.Election = e
	server, h := Serve(tb, c)
	e.own = h.URL
	var client *leasehttp.Client
	if c.TLS == nil {
		client = Client(tb, h, leasehttp.ClientConfig{})
	}
	return Peer{server, h, client, e, monitor(tb, server)}
}

// NewSingle starts a server without an election, beside others of its store. Its peer has none.
func NewSingle(tb testing.TB, store lease.Store, poll time.Duration) Peer {
	tb.Helper()
	server, h := Serve(tb, leaseserver.Config{Store: store, PollInterval: poll})
	return Peer{server, h, Client(tb, h, leasehttp.ClientConfig{}), nil, monitor(tb, server)}
}

// monitor runs the Monitor of a server until the test ends, or stop is called.
func monitor(tb testing.TB, server *leaseserver.Server) (stop context.CancelFunc) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	var wg sync.WaitGroup
	wg.Go(func() { server.Monitor(ctx) })
	tb.Cleanup(wg.Wait)
	tb.Cleanup(cancel)
	return cancel
}

// NewPeers starts a peer on each of the stores. The first one is active, and the others forward.
func NewPeers(tb testing.TB, poll time.Duration, stores ...lease.Store) (peers []Peer) {
	tb.Helper()
	for _, store := range stores {
		peers = append(peers, NewPeer(tb, store, poll))
	}
	Elect(tb, peers, 0)
	return peers
}

// Elect makes one of the peers active, and waits until the others forward to it.
func Elect(tb testing.TB, peers []Peer, active int) {
	tb.Helper()
	peers[active].Election.Believe(peers[active].HTTP.URL)
	AwaitMetric(tb, peers[active].Server, "lock_server_active", 1)
	for i, p := range peers {
		if i != active {
			p.Election.Believe(peers[active].HTTP.URL)
		}
	}
	for i, p := range peers {
		if i != active {
			AwaitMetric(tb, p.Server, "lock_server_forwards", 1)
		}
	}
}

// AwaitMetric waits until a metric has a value.
func AwaitMetric(tb testing.TB, s *leaseserver.Server, name string, value float64) {
	tb.Helper()
	await.Until(tb, await.Soon, func() bool { return Metric(tb, s, name) == value }, "%s = %v", name, value)
}
