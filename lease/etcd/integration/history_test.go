package integration_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

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

// A remote is a store behind a server, whose business alone sweeps are.
type remote struct {
	*leasehttp.Client
	lease.Store
}

func (r remote) Acquire(ctx context.Context, q lease.AcquireRequest) (lease.Lease, error) {
	return r.Client.Acquire(ctx, q)
}

func (r remote) Renew(ctx context.Context, q lease.RenewRequest) (lease.Lease, error) {
	return r.Client.Renew(ctx, q)
}

func (r remote) Release(ctx context.Context, c lease.Claim) error { return r.Client.Release(ctx, c) }

func (r remote) Get(ctx context.Context, name string) (lease.Record, error) {
	return r.Client.Get(ctx, name)
}

func (r remote) List(ctx context.Context, q lease.ListRequest) iter.Seq2[lease.Record, error] {
	return r.Client.List(ctx, q)
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
		return remote{client, store}
	}
}

func TestAHistoryOverTwoLockServersIsLegalWhileMembersDieAndAreCutOff(t *testing.T) {
	t.Parallel()
	operations := soak.Size(t, 3_000, 10_000)
	c := startCluster(t, 3, 3)
	// Their clocks differ by 20 s, and from this machine's by 10 s.
	stores := []*etcd.Store{c.store(0, ahead(10*time.Second)), c.store(1, ahead(-10*time.Second))}
	history := leasetest.NewHistory()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked, answered, enough atomic.Int64
	var wg sync.WaitGroup
	for i, s := range stores {
		client := lockServer(t, s)
		for n := range 6 {
			own := history.Client(client())
			wg.Go(func() {
				for turn := 0; ctx.Err() == nil; turn++ {
					n, err := historyTurn(ctx, own, fmt.Sprintf("client-%d-%d", i, n), int(answered.Load()))
					asked.Add(int64(n))
					if err == nil || errors.Is(err, lease.ErrHeld) {
						answered.Add(int64(n))
					}
					if asked.Load() >= int64(operations) {
						enough.Store(1)
					}
				}
			})
		}
	}
	served := func() {
		t.Helper()
		began := answered.Load()
		c.eventually(func() bool { return answered.Load() > began+20 }, "nothing is served")
	}
	var gaps []time.Duration
	rounds := 0
	for ; enough.Load() == 0 || rounds < 1; rounds++ {
		served()
		leader := c.leader()
		began := time.Now()
		require.NoError(t, c.members[leader].Kill())
		served()
		gaps = append(gaps, time.Since(began))
		require.NoError(t, c.members[leader].Start())

		require.NoError(t, c.members[(leader+1)%3].Kill())
		served()
		require.NoError(t, c.members[(leader+1)%3].Start())

		leader = c.leader()
		heal := c.split(leader, 0)
		requireRefusal(t, stores[0])
		served()
		heal()
		served()

		leader = c.leader()
		require.NoError(t, c.members[leader].Signal(syscall.SIGSTOP))
		served()
		require.NoError(t, c.members[leader].Signal(syscall.SIGCONT))
		served()
	}
	cancel()
	wg.Wait()
	require.NoError(t, history.Check(2*time.Minute))
	counts := history.Counts()
	t.Logf("%d rounds of faults, %d operations, %+v; 20 turns after a kill of the leader %v", rounds, asked.Load(), counts, gaps)
	assert.Positive(t, counts.Granted)
	assert.Positive(t, counts.Refused)
	assert.Positive(t, counts.Ended, "no lease expired under its holder")
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

// historyTurn acquires one of some names, new ones all the time because a call with an unknown
// outcome makes the check of a name slow, renews it at times, and releases it or leaves it to
// expire. It returns how many operations it made.
func historyTurn(ctx context.Context, s lease.Store, holder string, n int) (operations int, err error) {
	name := fmt.Sprintf("job-%d-%d", n/60, rand.IntN(4))
	ttl := time.Duration(1+rand.IntN(3)) * time.Second
	r := lease.AcquireRequest{Name: name, Holder: holder, TTL: ttl}
	if rand.IntN(2) == 0 {
		r.IdempotencyKey = fmt.Sprintf("%s-%d-%d", holder, n, rand.Int64())
	}
	l, err := s.Acquire(ctx, r)
	if err != nil {
		return 1, err
	}
	operations = 1
	for rand.IntN(2) == 0 {
		operations++
		if _, err := s.Renew(ctx, lease.RenewRequest{Claim: l.Claim, TTL: ttl}); err != nil {
			return operations, err
		}
	}
	if rand.IntN(20) == 0 { // the lease is left to expire, and asked for once more
		for tick := time.NewTicker(ttl / 4); ctx.Err() == nil; <-tick.C {
			if r, err := s.Get(ctx, name); err == nil && (r.State != lease.Held || r.Token != l.Token) {
				break
			}
		}
		_, err := s.Renew(ctx, lease.RenewRequest{Claim: l.Claim, TTL: ttl})
		return operations + 1, err
	}
	return operations + 1, s.Release(ctx, l.Claim)
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
