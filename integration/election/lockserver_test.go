//go:build integration

package election

import (
	"context"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// serveLocks is the role of a lock server on SQLite, with the settings file and
// address.
func serveLocks(ctx context.Context, c *electiontest.Child) error {
	store, err := sqlite.Open(ctx, c.Settings["file"], sqlite.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	server, err := leaseserver.New(leaseserver.Config{Store: store})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	go c.Obey(ctx, nil, func(context.Context) error {
		stop()
		return nil
	})
	return server.ListenAndServe(ctx, c.Settings["address"])
}

// standOnLockServer is the role with the setting server.
func standOnLockServer(ctx context.Context, c *electiontest.Child) error {
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{c.Settings["server"]}})
	if err != nil {
		return err
	}
	defer client.Close()
	return standOnLease(ctx, c, client)
}

// A lockServer is a process that can be killed.
type lockServer struct {
	*electiontest.Node
	client *leasehttp.Client
}

func newLockServer(t *testing.T) *lockServer {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://" + address}})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s := &lockServer{electiontest.NewNode(t, electiontest.Job{
		Role: "lock server", Settings: map[string]string{"address": address, "file": filepath.Join(t.TempDir(), "locks.db")},
	}), client}
	s.start(t)
	return s
}

// start starts the process and waits until it answers.
func (s *lockServer) start(t *testing.T) {
	t.Helper()
	s.Start()
	until(t, "the lock server answers", func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Job.Settings["address"])
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

func (s *lockServer) setup() electiontest.Setup {
	return leaseSetup("lock client", "http://"+s.Job.Settings["address"], s.client,
		bounced("server killed", func(c *electiontest.Cluster) {
			s.Kill()
			s.start(c.T)
		}),
		bounced("server stopped", func(c *electiontest.Cluster) {
			s.Stop()
			s.start(c.T)
		}),
		down("server down", func(*electiontest.Cluster) { s.Kill() }, func(c *electiontest.Cluster) { s.start(c.T) }),
		down("server hangs", func(*electiontest.Cluster) { s.Signal(syscall.SIGSTOP) }, func(*electiontest.Cluster) { s.Signal(syscall.SIGCONT) }),
		bounced("server pauses", func(c *electiontest.Cluster) {
			s.Signal(syscall.SIGSTOP)
			<-time.After(time.Duration(c.Random.Int64N(int64(ttl))))
			s.Signal(syscall.SIGCONT)
		}),
	)
}

func TestOneLeadsOnALockServerWhateverHappens(t *testing.T) {
	electiontest.Play(t, newLockServer(t).setup())
}

func TestWithoutContextsLeadersOnALockServerOverlap(t *testing.T) {
	electiontest.Control(t, newLockServer(t).setup(), electiontest.Suspended(ttl, hand))
}
