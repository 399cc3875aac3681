//go:build linux

package etcd_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
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

// cutOff cuts a candidate off: its packets are dropped, and nobody receives an error.
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

// faults are what happens to the cluster.
func (e *electorate) faults() []electiontest.Fault {
	minority := electiontest.Fault{Name: "with a minority", Fixed: anew, Quick: hand, Strike: e.withMinority}
	away := electiontest.Fault{Name: "etcd away", Fixed: anew, Quick: 2 * hand, Outage: true, Strike: e.away}
	leaderStopped, memberStopped := e.survived("etcd's leader stopped", e.leaderStopped), e.survived("member stopped", e.followerStopped)
	leaderStopped.Fixed += silent
	memberStopped.Fixed += silent
	return []electiontest.Fault{
		minority, away, leaderStopped, memberStopped,
		e.survived("etcd's leader killed", e.leaderKilled),
		e.survived("etcd rolled", e.rolled),
		e.survived("etcd's leader moved", e.leaderMoved),
		e.survived("compacted", e.compacted),
		e.survived("member replaced", e.replaced),
	}
}

// survived is what two members of three survive, and mostly the candidate that leads, too.
func (e *electorate) survived(name string, strike func(*electiontest.Cluster) (undo func())) electiontest.Fault {
	return electiontest.Fault{
		Name: name, Fixed: anew, Quick: 2 * hand, Outage: true, Survivable: true,
		Strike: func(c *electiontest.Cluster, _ *electiontest.Node) func() { return strike(c) },
	}
}

// withMinority cuts one member and the candidate that leads off together, etcd's leader
// mostly: it is there, and answers nothing.
func (e *electorate) withMinority(c *electiontest.Cluster, n *electiontest.Node) func() {
	member := e.leader()
	if c.Random.IntN(3) == 0 {
		member = (member + 1) % 3
	}
	return e.split(member, n.Job.Node)
}

// away is a cluster that is down for longer than the lease.
func (e *electorate) away(c *electiontest.Cluster, _ *electiontest.Node) func() {
	for _, m := range e.members {
		m.Kill()
	}
	<-time.After(longest + electiontest.Lease)
	for _, m := range e.members {
		m.Start()
	}
	return func() {}
}

func (e *electorate) leaderKilled(c *electiontest.Cluster) func() {
	m := e.members[e.leader()]
	m.Kill()
	meanwhile(c)
	return m.Start
}

// meanwhile is how long a member is away: some candidates lose what they had by then.
func meanwhile(c *electiontest.Cluster) {
	<-time.After(electiontest.Lease + time.Duration(c.Random.Int64N(int64(electiontest.Lease))))
}

// leaderStopped is etcd's leader stopped for longer than the members need to choose another.
func (e *electorate) leaderStopped(c *electiontest.Cluster) func() { return e.stopped(c, e.leader()) }

func (e *electorate) followerStopped(c *electiontest.Cluster) func() {
	return e.stopped(c, (e.leader()+1)%3)
}

func (e *electorate) stopped(c *electiontest.Cluster, member int) func() {
	m := e.members[member]
	m.Signal(syscall.SIGSTOP)
	meanwhile(c)
	return func() { m.Signal(syscall.SIGCONT) }
}

// rolled is each member killed and started again when the one before serves.
func (e *electorate) rolled(c *electiontest.Cluster) func() {
	for _, m := range e.members {
		m.Kill()
		m.Start()
		e.serves(m.Address)
	}
	return func() {}
}

func (e *electorate) leaderMoved(c *electiontest.Cluster) func() {
	old := e.leader()
	client := e.client(e.members[old].Address)
	e.until(client, func(ctx context.Context, known []*etcdserverpb.Member) bool {
		at := slices.IndexFunc(known, func(k *etcdserverpb.Member) bool { return k.Name == e.members[(old+1)%3].Member.Name })
		_, err := client.MoveLeader(ctx, known[at].ID) // which waits for ever if the third one leads then
		return err == nil || e.leader() != old
	})
	return func() {}
}

// compacted is all of the history forgotten, and each member in turn writes its file anew.
func (e *electorate) compacted(c *electiontest.Cluster) func() {
	client := e.client(e.endpoints()...)
	r, err := client.Get(c.T.Context(), "x")
	require.NoError(c.T, err)
	_, err = client.Compact(c.T.Context(), r.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(c.T, err)
	for _, address := range e.endpoints() {
		_, err := client.Defragment(c.T.Context(), address)
		require.NoError(c.T, err)
	}
	return func() {}
}

// replaced is a member, etcd's leader mostly, that is removed, and comes back with an empty disk.
func (e *electorate) replaced(c *electiontest.Cluster) func() {
	i := (e.leader() + c.Random.IntN(2)) % 3
	m := e.members[i]
	client := e.client(e.members[(i+1)%3].Address, e.members[(i+2)%3].Address)
	e.until(client, func(ctx context.Context, known []*etcdserverpb.Member) bool {
		at := slices.IndexFunc(known, func(k *etcdserverpb.Member) bool { return k.Name == m.Member.Name })
		if at >= 0 {
			_, _ = client.MemberRemove(ctx, known[at].ID)
		}
		return at < 0
	})
	m.Kill()
	e.until(client, func(ctx context.Context, known []*etcdserverpb.Member) bool {
		there := slices.ContainsFunc(known, func(k *etcdserverpb.Member) bool { return k.PeerURLs[0] == m.Member.Peers })
		if !there {
			_, _ = client.MemberAdd(ctx, []string{m.Member.Peers})
		}
		return there
	})
	m.Member.Dir, m.Member.Joins = filepath.Join(c.T.TempDir(), strconv.Itoa(c.Random.Int())), true
	m.Start()
	e.serves(m.Address)
	return func() {}
}

// until changes the members, or which of them leads, until they are as they should be: a request
// to change them is not answered if etcd's leader changes meanwhile.
func (e *electorate) until(client *clientv3.Client, done func(ctx context.Context, known []*etcdserverpb.Member) bool) {
	e.t.Helper()
	e.eventually(func() bool {
		ctx, cancel := context.WithTimeout(e.t.Context(), time.Second)
		defer cancel()
		all, err := client.MemberList(ctx)
		return err == nil && done(ctx, all.Members)
	}, "the members do not change")
}

// client is one beside the candidates'.
func (e *electorate) client(endpoints ...string) *clientv3.Client {
	return raw(e.t, clientv3.Config{Endpoints: endpoints, DialOptions: []grpc.DialOption{grpc.WithContextDialer(e.clients[mostCandidates].Dial)}})
}

// serves waits until one member answers with what a majority has.
func (e *electorate) serves(address string) {
	e.t.Helper()
	client := e.client(address)
	e.eventually(func() bool {
		ctx, cancel := context.WithTimeout(e.t.Context(), time.Second)
		defer cancel()
		_, err := client.Get(ctx, "x")
		return err == nil
	}, "a member does not serve")
}
