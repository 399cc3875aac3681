//go:build integration

package shards

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/netns"
)

// A network that loses all packets of a node, in both directions of its transactions too, and nobody is told.
func TestShardsOfANodeInABlackHoleAreOwnedAgain(t *testing.T) {
	n := netns.New(t)
	server, local := n.StartServer(t)
	g := newGameOn(t, server, local, nil, func(node *electiontest.Node) {
		if node.Job.Node > 0 {
			return
		}
		node.Prefix = []string{"ip", "netns", "exec", n.Client}
		node.Job.Settings[settingDSN], node.Job.Settings[settingWork] = server.DSN(""), server.DSN("")
		node.Job.Observer = "unixgram " + newRelay(t, node.Job.Observer)
	})
	g.open(3, func(*electiontest.Job) {})
	cutOff := g.faultNamed("cut off")
	cutOff.victim = g.Nodes[0]
	cutOff.Strike = by(func() func() {
		n.Forward(t, false)
		return func() { n.Forward(t, true) }
	})
	for range 2 {
		g.round(cutOff)
	}
	g.Close()
	g.requireLegal()
}

// newRelay gives the datagrams of nodes in another namespace, which see the same files, to the observer.
func newRelay(t *testing.T, observer string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "observer")
	from, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	to, err := net.Dial("udp4", strings.TrimPrefix(observer, "udp4 "))
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, judge.OperationSize)
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
