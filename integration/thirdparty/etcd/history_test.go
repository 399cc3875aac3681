package etcd_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/pglatch/pglatch/internal/test/leaseload"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// ahead makes a store's wall clock wrong.
func ahead(by time.Duration) func(*etcd.Config) {
	return func(c *etcd.Config) { c.Wall = func() time.Time { return time.Now().Add(by) } }
}

// lockServer serves a store; it returns what makes clients, which send nothing again: a
// release that was done is stale when it is sent again after another took the lock.
func lockServer(t *testing.T, store lease.Store) func() lease.Store {
	t.Helper()
	s, err := leaseserver.New(leaseserver.Config{Store: store})
	require.NoError(t, err)
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return func() lease.Store {
		client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{server.URL}, Resends: -1})
		require.NoError(t, err)
		t.Cleanup(client.Close)
		return leaseload.Remote{Client: client}
	}
}

func TestAHistoryOverTwoLockServersIsLegalWhileMembersDieAndAreCutOff(t *testing.T) {
	t.Parallel()
	grants := soak.Size[int64](t, 600, 2_000)
	c := startCluster(t, 3, 3)
	// Their clocks differ by 20 s, and from this machine's by 10 s.
	stores := []*etcd.Store{c.store(0, ahead(10*time.Second)), c.store(1, ahead(-10*time.Second))}
	config := leaseload.Config{Prefix: "job", TTL: 4 * time.Second}
	for _, s := range stores {
		client := lockServer(t, s)
		for range 6 {
			config.Stores = append(config.Stores, client())
		}
	}
	l := leaseload.Start(t, config)
	served := func() {
		t.Helper()
		l.Await(20)
	}
	var gaps []time.Duration
	rounds := 0
	for ; l.Granted() < grants || rounds < 1; rounds++ {
		served()
		leader := c.leader()
		began := time.Now()
		c.members[leader].Kill()
		served()
		gaps = append(gaps, time.Since(began))
		c.members[leader].Start()

		c.members[(leader+1)%3].Kill()
		served()
		c.members[(leader+1)%3].Start()

		leader = c.leader()
		heal := c.split(leader, 0)
		requireRefusal(t, stores[0])
		served()
		heal()
		served()

		leader = c.leader()
		c.members[leader].Signal(syscall.SIGSTOP)
		served()
		c.members[leader].Signal(syscall.SIGCONT)
		served()
	}
	t.Logf("%d rounds of faults; 20 grants after a kill of the leader %v", rounds, gaps)
	l.RequireLegal(t.Context())
}

// requireRefusal checks that a store which is cut off from the majority grants nothing, tells
// nothing, and says so in bounded time.
func requireRefusal(t *testing.T, s *etcd.Store) {
	t.Helper()
	eventually(t, func() bool {
		began := time.Now()
		_, err := s.Get(t.Context(), "nobody-had-this")
		require.Less(t, time.Since(began), patience/2)
		if errors.Is(err, lease.ErrNotFound) {
			return false // it was asked before the members were apart
		}
		require.ErrorIs(t, err, lease.ErrBusy)
		return true
	}, "it answers all the time")
	_, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "nobody-had-this", Holder: "a", TTL: time.Minute})
	require.ErrorIs(t, err, lease.ErrBusy)
}

// staleReads makes a client read what one member has, without asking the others.
func staleReads(c *etcd.Config) {
	c.Client.DialOptions = append(c.Client.DialOptions, grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if r, ok := req.(*etcdserverpb.RangeRequest); ok {
				r.Serializable = true
				if md, ok := metadata.FromOutgoingContext(ctx); ok { // a member that knows no leader is to answer, too
					md = md.Copy()
					delete(md, rpctypes.MetadataRequireLeaderKey)
					ctx = metadata.NewOutgoingContext(ctx, md)
				}
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}))
}

func TestAStoreThatIsCutOffTellsNothingOldAndOneThatReadsSerializablyIsFound(t *testing.T) {
	t.Parallel()
	for name, serializable := range map[string]bool{"linearizable": false, "serializable": true} {
		t.Run(name, func(t *testing.T) { // one after the other: each is three processes
			c := startCluster(t, 3, 2)
			history := leasetest.NewHistory()
			cut := open(t, c.at(0, func(config *etcd.Config) {
				if serializable {
					staleReads(config)
				}
			}), c.members[0].Address)
			here, there := history.Client(cut), history.Client(c.store(1, nil))
			old, err := here.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Hour})
			require.NoError(t, err)
			heal := c.split(0, 0)
			defer heal()
			eventually(t, func() bool { return there.Release(t.Context(), old.Claim) == nil }, "the majority serves nobody")
			var l lease.Lease
			eventually(t, func() bool {
				l, err = there.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "b", TTL: time.Hour, IdempotencyKey: "1"})
				return err == nil
			}, "the majority grants nothing")
			_, err = here.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: time.Hour})
			checked := history.Check(patience)
			if serializable {
				require.ErrorIs(t, err, lease.ErrStale, "what was so before the cut")
				require.ErrorIs(t, checked, leasetest.ErrIllegal)
				return
			}
			require.ErrorIs(t, err, lease.ErrBusy)
			require.NoError(t, checked)
		})
	}
}
