package etcd_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/notrun"
	"github.com/pglatch/pglatch/lease/etcd"
)

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
