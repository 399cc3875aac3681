//go:build integration

package shards

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/netns"
)

// A network that loses all packets of a node, in both directions of its transactions too, and nobody is told.
func TestShardsOfANodeInABlackHoleAreOwnedAgain(t *testing.T) {
	n := netns.New(t)
	server, local := n.StartServer(t)
	g := newGameOn(t, server, local)
	relay := newRelay(t, g.observer.queue.Address())
	g.join = func(node *electiontest.Node) {
		if node.Job.Node > 0 {
			return
		}
		node.Prefix = []string{"ip", "netns", "exec", n.Client}
		node.Job.Settings[settingDSN], node.Job.Settings[settingWork] = server.DSN(""), server.DSN("")
		node.Job.Settings[settingObserver] = "unixgram " + relay
	}
	g.open(3, func(*electiontest.Job) {})
	cutOff, _ := faultNamed("cut off")
	cutOff.victim = g.nodes[0]
	cutOff.strike = func(*game, *electiontest.Node) func() {
		n.Forward(t, false)
		return func() { n.Forward(t, true) }
	}
	for range 2 {
		g.round(cutOff)
	}
	g.close()
	writes, stale, back := g.ledger.verdict(t)
	assert.Empty(t, g.late, "operations in a term, after the first operation of a later one")
	assert.Zero(t, stale+back, "writes of a term after a later one had begun")
	assert.Positive(t, writes)
}

// newRelay gives the datagrams of nodes in another namespace, which see the same files, to the observer.
func newRelay(t *testing.T, observer string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "observer")
	from, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	to, err := net.Dial("udp4", observer)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, operationSize)
		for {
			if _, err := from.Read(b); err != nil {
				return // closed
			}
			_, _ = to.Write(b)
		}
	}()
	t.Cleanup(func() {
		_ = from.Close()
		<-done
		_ = to.Close()
	})
	return path
}
