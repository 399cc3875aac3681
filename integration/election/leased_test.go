//go:build integration

package election

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease"
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
