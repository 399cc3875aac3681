package etcd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/notrun"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/sharetest"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// quick is a heartbeat with which the shortest lease of etcd is one second.
const quick = 50 * time.Millisecond

func serve(tb testing.TB, m etcdtest.Member) string {
	tb.Helper()
	m.Dir, m.Heartbeat = filepath.Join(tb.TempDir(), "etcd"), quick
	address, stop, err := etcdtest.Serve(m)
	require.NoError(tb, err)
	tb.Cleanup(stop)
	return address
}

func TestTheStoreConforms(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	var stores atomic.Int64
	var prefixes sync.Map // by store
	another := func(t *testing.T, s lease.Store) lease.Store {
		t.Helper()
		prefix, _ := prefixes.Load(s)
		s = open(t, func(c *etcd.Config) { c.Prefix = prefix.(string) }, address)
		prefixes.Store(s, prefix)
		return s
	}
	leasetest.Run(t, leasetest.Harness{
		TTL:  time.Second,
		Race: leasetest.Contention{Clients: 20, Operations: 12, TTL: 4 * time.Second},
		New: func(t *testing.T) lease.Store {
			t.Helper()
			prefix := "conformance/" + strconv.FormatInt(stores.Add(1), 10) + "/"
			s := open(t, func(c *etcd.Config) { c.Prefix = prefix }, address)
			prefixes.Store(s, prefix)
			return s
		},
		Reopen: func(t *testing.T, s lease.Store) lease.Store {
			t.Helper()
			assert.NoError(t, s.(*etcd.Store).Close())
			return another(t, s)
		},
		Another: another,
	})
}

func TestLocksAreSharedInEtcd(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	var stores atomic.Int64
	sharetest.Run(t, sharetest.Harness{TTL: time.Second, New: func(t *testing.T) lease.Store {
		t.Helper()
		prefix := "shared/" + strconv.FormatInt(stores.Add(1), 10) + "/"
		return open(t, func(c *etcd.Config) { c.Prefix = prefix }, address)
	}})
}

// A TTL of less than a second becomes one of a whole second at least, and etcd ends leases some time after theirs.
func TestTheLoadFindsNoBrokenPromiseOnEtcd(t *testing.T) {
	t.Parallel()
	program := command(t)
	store := "etcd://" + strings.TrimPrefix(serve(t, etcdtest.Member{NoFsync: true}), "http://")
	stale := 0
	for round := 0; stale == 0 && round < 5; round++ { // a busy machine may not get as far in its time
		load := exec.CommandContext(t.Context(), program, "load", "--store", store, "--duration", "8s", "-o", "json",
			"--clients", "8", "--locks", "8", "--ttl", "300ms", "--heartbeats", "5", "--expire", "30")
		var says strings.Builder
		load.Stderr = &says
		out, err := load.Output()
		require.NoError(t, err, "%s%s", out, &says)
		var report struct {
			Counts struct {
				StaleRenewals int `json:"stale_renewals_refused"`
			}
		}
		require.NoError(t, json.Unmarshal(out, &report), string(out))
		stale = report.Counts.StaleRenewals
	}
	assert.Positive(t, stale, "some were left to expire")
}

const patience = await.Patience

// A cluster is members in processes of their own, each in a network namespace, and places
// for clients.
type cluster struct {
	t       *testing.T
	members []*etcdtest.Process
	places  []*etcdtest.Place // of the members
	clients []*etcdtest.Place
}

func startCluster(t *testing.T, members, clients int) *cluster {
	t.Helper()
	return startClusterOf(t, etcdtest.Member{}, members, clients)
}

// startClusterOf starts members like one.
func startClusterOf(t *testing.T, like etcdtest.Member, members, clients int) *cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		notrun.Skip(t, "network namespaces need root")
	}
	places, remove, err := etcdtest.NewNetwork(members + clients)
	t.Cleanup(remove)
	if err != nil {
		notrun.Skip(t, "network namespaces: "+err.Error())
	}
	c := &cluster{t: t, places: places[:members], clients: places[members:]}
	var all []string
	for i, p := range c.places {
		all = append(all, fmt.Sprintf("m%d=http://%s:2380", i, p.IP))
	}
	for i, p := range c.places {
		like.Name, like.Dir, like.Cluster = fmt.Sprintf("m%d", i), filepath.Join(t.TempDir(), "etcd"), strings.Join(all, ",")
		like.Peers, like.Clients = "http://"+p.IP+":2380", "http://"+p.IP+":2379"
		c.members = append(c.members, etcdtest.Start(t, like, p.Prefix()...))
	}
	c.leader() // until then nobody is served
	return c
}

// openMembers opens a store on a cluster of processes.
func openMembers(tb testing.TB, n int) *etcd.Store {
	tb.Helper()
	var endpoints []string
	for _, m := range etcdtest.StartCluster(tb, tb.TempDir(), n) {
		endpoints = append(endpoints, m.Address)
	}
	return open(tb, nil, endpoints...)
}

// at is the configuration of a store in a place.
func (c *cluster) at(place int, configure func(*etcd.Config)) func(*etcd.Config) {
	return func(config *etcd.Config) {
		config.Client.DialOptions = append(config.Client.DialOptions, grpc.WithContextDialer(c.clients[place].Dial))
		if configure != nil {
			configure(config)
		}
	}
}

// store opens a store that knows all members.
func (c *cluster) store(place int, configure func(*etcd.Config)) *etcd.Store {
	c.t.Helper()
	var all []string
	for _, m := range c.members {
		all = append(all, m.Address)
	}
	return open(c.t, c.at(place, configure), all...)
}

// leader is the index of the member that leads, as most of them say.
func (c *cluster) leader() int {
	c.t.Helper()
	found := -1
	c.eventually(func() bool {
		votes := make([]int, len(c.members))
		ids := map[uint64]int{}
		var says []uint64
		for i, m := range c.members {
			config := clientv3.Config{Endpoints: []string{m.Address}, DialTimeout: time.Second, Logger: zap.NewNop()}
			if len(c.clients) > 0 {
				config.DialOptions = []grpc.DialOption{grpc.WithContextDialer(c.clients[len(c.clients)-1].Dial)}
			}
			client, err := clientv3.New(config)
			require.NoError(c.t, err)
			ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
			if s, err := client.Status(ctx, m.Address); err == nil {
				ids[s.Header.MemberId] = i
				says = append(says, s.Leader)
			}
			cancel()
			_ = client.Close()
		}
		for _, id := range says {
			if i, ok := ids[id]; ok {
				votes[i]++
			}
		}
		found = slices.Index(votes, slices.Max(votes))
		return votes[found] > len(c.members)/2
	}, "no leader")
	return found
}

// split puts a member and a place of clients alone on the second switch; heal undoes it.
func (c *cluster) split(member, place int) (heal func()) {
	c.t.Helper()
	move := func(second bool) {
		require.NoError(c.t, c.places[member].Move(second))
		require.NoError(c.t, c.clients[place].Move(second))
	}
	move(true)
	return func() { move(false) }
}

func (c *cluster) eventually(condition func() bool, message string) {
	eventually(c.t, condition, message)
}

func eventually(t *testing.T, condition func() bool, message string) {
	t.Helper()
	await.Until(t, patience, condition, message)
}

func TestMain(m *testing.M) {
	etcdtest.Main()
	proctest.Play(serving, serveLocks)
	electiontest.Main(map[string]electiontest.Role{"etcd": standOnEtcd})
	os.Exit(m.Run())
}

// open opens a store; configure may be nil.
func open(tb testing.TB, configure func(*etcd.Config), endpoints ...string) *etcd.Store {
	tb.Helper()
	c := etcd.Config{Client: clientv3.Config{Endpoints: endpoints}}
	if configure != nil {
		configure(&c)
	}
	s, err := etcd.Open(tb.Context(), c)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, s.Close()) })
	return s
}

func TestAWaiterIsWokenByARelease(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	one, other := open(t, nil, address), open(t, nil, address)
	var last uint64
	for range 5 {
		l, err := one.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Hour})
		require.NoError(t, err)
		_, err = other.AcquireWait(t.Context(), lease.AcquireRequest{Name: "job", Holder: "b", TTL: time.Hour}, 50*time.Millisecond)
		require.ErrorIs(t, err, lease.ErrHeld, "the time to wait was over")
		type answer struct {
			lease lease.Lease
			err   error
		}
		got := make(chan answer, 1)
		go func() {
			l, err := other.AcquireWait(t.Context(), lease.AcquireRequest{Name: "job", Holder: "b", TTL: time.Hour}, time.Hour)
			got <- answer{l, err}
		}()
		require.NoError(t, one.Release(t.Context(), l.Claim))
		a := <-got
		require.NoError(t, a.err)
		assert.Greater(t, a.lease.Token, max(l.Token, last))
		last = a.lease.Token
		require.NoError(t, other.Release(t.Context(), a.lease.Claim))
	}
}

func TestAWaiterIsWokenByAnExpiry(t *testing.T) {
	t.Parallel()
	s := open(t, nil, serve(t, etcdtest.Member{NoFsync: true}))
	l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Second, LockDelay: time.Second})
	require.NoError(t, err)
	next, err := s.AcquireWait(t.Context(), lease.AcquireRequest{Name: "job", Holder: "b", TTL: time.Hour}, time.Hour)
	require.NoError(t, err)
	assert.Greater(t, next.Token, l.Token)
}

func TestAnElectionOnEtcdConforms(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	var elections atomic.Int64
	type node struct {
		*leased.Backend
		store *etcd.Store
		name  string
	}
	name := func() string { return "election-" + time.Duration(elections.Add(1)).String() }
	leadertest.Run(t, leadertest.Harness{
		TTL:             2 * time.Second,
		WaitSpendsTerms: true,
		New: func(t *testing.T) func() driver.Backend {
			t.Helper()
			store, name := open(t, nil, address), name()
			return func() driver.Backend {
				b, err := leased.New(store, leased.Config{Name: name})
				require.NoError(t, err)
				return &node{b, store, name}
			}
		},
		Kill: func(t *testing.T, b driver.Backend) {
			t.Helper()
			n := b.(*node)
			r, err := n.store.Get(t.Context(), n.name)
			require.NoError(t, err)
			if r.State == lease.Held {
				require.NoError(t, n.store.Release(t.Context(), r.Claim)) // as an operator would
			}
		},
	})
}
