package servetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// A Peer is one lock server of several on one store.
type Peer struct {
	Server *leaseserver.Server
	Client *leasehttp.Client
	Stop   context.CancelFunc // stops receiving and sending its messages
}

// NewPeer starts a peer that polls at this interval, never if it is negative.
func NewPeer(tb testing.TB, store lease.Store, poll time.Duration) Peer {
	tb.Helper()
	return NewPeerOf(tb, leaseserver.Config{Store: store, PollInterval: poll})
}

// NewPeerOf starts a peer.
func NewPeerOf(tb testing.TB, c leaseserver.Config) Peer {
	tb.Helper()
	server, h := Serve(tb, c)
	ctx, cancel := context.WithCancel(tb.Context())
	var wg sync.WaitGroup
	wg.Go(func() { server.Monitor(ctx) })
	tb.Cleanup(wg.Wait)
	tb.Cleanup(cancel)
	return Peer{server, Client(tb, h, leasehttp.ClientConfig{}), cancel}
}

// A Tap receives the messages of a store's servers.
type Tap struct {
	tb  testing.TB
	mu  sync.Mutex
	all map[string]bool
}

// NewTap returns a Tap when it listens.
func NewTap(tb testing.TB, m lease.Messenger) *Tap {
	tb.Helper()
	x := &Tap{tb: tb, all: make(map[string]bool)}
	ctx, cancel := context.WithCancel(tb.Context())
	ready := make(chan struct{})
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(ended)
		err := m.Listen(ctx, func() { close(ready) }, func(message string) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.all[message] = true
		})
		assert.ErrorIs(tb, err, context.Canceled)
	})
	tb.Cleanup(wg.Wait)
	tb.Cleanup(cancel)
	select {
	case <-ready:
	case <-ended:
		require.Fail(tb, "it does not listen")
	}
	return x
}

// Await waits until n different messages of a kind were sent.
func (x *Tap) Await(kind string, n int) {
	x.tb.Helper()
	require.Eventually(x.tb, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		found := 0
		for m := range x.all {
			if strings.HasPrefix(m, kind+" ") {
				found++
			}
		}
		return found >= n
	}, Bound, time.Millisecond, "%s", kind)
}

// awaitOrder waits until this many servers know of this many waiters: each reports that with its key clock.
func (x *Tap) awaitOrder(servers int, waiters uint64) {
	x.tb.Helper()
	require.Eventually(x.tb, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		know := make(map[string]bool)
		for m := range x.all {
			var server string
			var digest, clock uint64
			if n, _ := fmt.Sscanf(m, "alive %s %x %d", &server, &digest, &clock); n == 3 && clock >= waiters {
				know[server] = true
			}
		}
		return len(know) >= servers
	}, Bound, time.Millisecond, "a server has not heard of all who wait")
}
