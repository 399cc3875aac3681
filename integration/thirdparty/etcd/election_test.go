//go:build linux

package etcd_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
)

// The times of an election on these clusters, which with their heartbeat grant leases of a
// second. Followers are woken by a watch, or look.
const (
	// longest is how long the lease of a leader that is gone lasts: whole seconds, and up to
	// one more because etcd looks twice a second.
	longest = electiontest.Lease + time.Second
	// chosen is how long members without a leader need, if one wins at the first vote.
	chosen = 2 * 10 * quick
	// anew is longest where another member leads meanwhile: it begins to count anew, and adds
	// the time in which it can have been chosen.
	anew = chosen + longest + 10*quick
	// silent is how long clients ask a member that is stopped: as long as gRPC waits before it
	// asks whether a connection is alive, and for the answer.
	silent = 11 * time.Second
	// hand is an attempt, and a look.
	hand = electiontest.RetryAtMost + electiontest.RenewTimeout + leased.DefaultPollInterval*5/4

	electionName = "election"
)

// standOnEtcd is the role with the settings endpoints and place.
func standOnEtcd(ctx context.Context, c *electiontest.Child) error {
	store, err := etcd.Open(ctx, etcd.Config{Client: clientv3.Config{
		Endpoints:   strings.Split(c.Settings["endpoints"], ","),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(etcdtest.At(c.Settings["place"]).Dial)},
	}})
	if err != nil {
		return err
	}
	defer store.Close()
	backend, err := leased.New(store, leased.Config{Name: electionName})
	if err != nil {
		return err
	}
	return c.Stand(ctx, backend, nil)
}

// An electorate is candidates on a cluster, each in a place of its own.
type electorate struct {
	*cluster
	store *etcd.Store
}

const mostCandidates = 5

func newElectorate(t *testing.T) *electorate {
	t.Helper()
	c := startClusterOf(t, etcdtest.Member{Heartbeat: quick}, 3, mostCandidates+1)
	return &electorate{c, c.store(mostCandidates, nil)}
}

func (e *electorate) place(n *electiontest.Node) *etcdtest.Place { return e.clients[n.Job.Node] }

func (e *electorate) endpoints() []string {
	var all []string
	for _, m := range e.members {
		all = append(all, m.Address)
	}
	return all
}

func (e *electorate) setup() electiontest.Setup {
	killed, suspended, cut := electiontest.Killed(longest, hand), electiontest.Suspended(longest, hand), e.cutOff()
	return electiontest.Setup{
		Least: 3, Most: mostCandidates,
		Join: func(n *electiontest.Node) {
			n.Job.Role = "etcd"
			n.Job.Settings = map[string]string{"endpoints": strings.Join(e.endpoints(), ","), "place": e.place(n).Name()}
		},
		Faults: append([]electiontest.Fault{
			killed, suspended, cut, electiontest.Deposed(0, hand), electiontest.Retired(0, hand), deployed(),
		}, e.faults()...),
		Also: []electiontest.Fault{killed, suspended, cut},
		Free: func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			r, err := e.store.Get(ctx, electionName)
			return errors.Is(err, lease.ErrNotFound) || err == nil && r.State != lease.Held
		},
	}
}

// cutOff is a candidate that reaches nobody: nothing arrives, and nobody is told.
func (e *electorate) cutOff() electiontest.Fault {
	return electiontest.Fault{Name: "cut off", Fixed: longest, Quick: hand, Strike: func(c *electiontest.Cluster, n *electiontest.Node) func() {
		require.NoError(c.T, e.place(n).Move(true))
		return func() { require.NoError(c.T, e.place(n).Move(false)) }
	}}
}

// deployed is each process stopped in good order and started again, one after the other.
func deployed() electiontest.Fault {
	return electiontest.Fault{Name: "deployed", Quick: hand, Outage: true, Survivable: true, Strike: func(c *electiontest.Cluster, _ *electiontest.Node) func() {
		for _, n := range c.Nodes {
			n.Stop()
			n.Start()
		}
		return func() {}
	}}
}

func TestOneLeadsOnEtcdWhateverHappens(t *testing.T) {
	electiontest.Play(t, newElectorate(t).setup())
}

func TestWithoutContextsLeadersOnEtcdOverlap(t *testing.T) {
	electiontest.Control(t, newElectorate(t).setup(), electiontest.Suspended(longest, hand))
}
