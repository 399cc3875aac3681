//go:build integration

package election

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/lease/sqlite"
)

const leaseName = "election"

// hand is a handover to who polls a store, or waits in its line.
const hand = attempt + leased.DefaultPollInterval*5/4

// standOnLease stands for election with a lease of a store.
func standOnLease(ctx context.Context, c *electiontest.Child, store leased.Store) error {
	backend, err := leased.New(store, leased.Config{Name: leaseName})
	if err != nil {
		return err
	}
	return c.Stand(ctx, backend, nil)
}

// leaseSetup is what all stores of leases have in common, through a server that
// each node reaches by its proxy. A follower may be given the lease as it dies.
func leaseSetup(role, server string, store leased.Store, faults ...electiontest.Fault) electiontest.Setup {
	killed := electiontest.Killed(ttl, hand)
	suspended, cut := electiontest.Suspended(ttl, hand), electiontest.CutOff(ttl, hand)
	return electiontest.Setup{
		Least: 2, Most: 9,
		Join: func(n *electiontest.Node) {
			n.Job.Role, n.Job.Settings = role, map[string]string{"server": n.Through(server)}
		},
		Faults: append([]electiontest.Fault{
			killed, suspended, cut, electiontest.Deposed(0, hand), electiontest.Retired(0, hand), slow(),
		}, faults...),
		Also: []electiontest.Fault{killed, suspended, cut},
		Free: func() bool { return isFree(store) },
	}
}

// isFree reports whether nobody has the lease.
func isFree(store leased.Store) bool {
	ctx, cancel := context.WithTimeout(context.Background(), ttl)
	defer cancel()
	r, err := store.Get(ctx, leaseName)
	return errors.Is(err, lease.ErrNotFound) || err == nil && r.State != lease.Held
}

// slow is a network that is slow for two leases, so that some calls of the store take
// too long.
func slow() electiontest.Fault {
	return electiontest.Fault{
		Name: "slow", Fixed: ttl, Quick: hand, Outage: true, Survivable: true,
		Strike: func(c *electiontest.Cluster, _ *electiontest.Node) func() {
			delay := time.Duration(c.Random.Int64N(int64(electiontest.RenewTimeout)))
			for _, n := range c.Nodes {
				n.Proxy.Delay(delay)
			}
			<-time.After(2 * ttl)
			for _, n := range c.Nodes {
				n.Proxy.Delay(0)
			}
			return func() {}
		},
	}
}

// down is a server that is away for longer than the lease, which ends meanwhile.
func down(name string, stop, start func(c *electiontest.Cluster)) electiontest.Fault {
	return electiontest.Fault{
		Name: name, Quick: 2 * hand, Outage: true,
		Strike: func(c *electiontest.Cluster, _ *electiontest.Node) func() {
			stop(c)
			<-time.After(ttl * 3 / 2)
			start(c)
			return func() {}
		},
	}
}

// bounced is a server that is back soon, so that the leader mostly goes on.
func bounced(name string, bounce func(c *electiontest.Cluster)) electiontest.Fault {
	return electiontest.Fault{
		Name: name, Fixed: ttl, Quick: 2 * hand, Outage: true, Survivable: true,
		Strike: func(c *electiontest.Cluster, _ *electiontest.Node) func() {
			bounce(c)
			return func() {}
		},
	}
}

// standOnPostgresLease is the role with the setting server.
func standOnPostgresLease(ctx context.Context, c *electiontest.Child) error {
	store, err := postgres.New(postgres.Config{DSN: c.Settings["server"]})
	if err != nil {
		return err
	}
	defer store.Close()
	return standOnLease(ctx, c, store)
}

func newLeaseServer(t *testing.T) electiontest.Setup {
	t.Helper()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"synchronous_commit": "on"}})
	store, err := postgres.New(postgres.Config{DSN: server.DSN("")})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.NoError(t, store.Migrate(t.Context()))
	return leaseSetup("lease/postgres", server.DSN(""), store,
		bounced("sessions ended", func(c *electiontest.Cluster) {
			_, err := pgtest.Connect(c.T, server.DSN("")).Exec(c.T.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
			require.NoError(c.T, err)
		}),
		bounced("server restarted", func(c *electiontest.Cluster) {
			require.NoError(c.T, server.RestartAnyhow(context.WithoutCancel(c.T.Context()), c.Random))
		}),
		down("server down",
			func(c *electiontest.Cluster) { require.NoError(c.T, server.Kill()) },
			func(c *electiontest.Cluster) {
				require.NoError(c.T, server.Start(context.WithoutCancel(c.T.Context())))
			}),
	)
}

func TestOneLeadsOnALeaseInPostgreSQLWhateverHappens(t *testing.T) {
	electiontest.Play(t, newLeaseServer(t))
}

func TestWithoutContextsLeadersOnALeaseInPostgreSQLOverlap(t *testing.T) {
	electiontest.Control(t, newLeaseServer(t), electiontest.Suspended(ttl, hand))
}

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
