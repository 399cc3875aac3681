package leased_test

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/leased"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

const count = 60

// A member is a node that runs.
type member struct {
	*shards.Node
	stop context.CancelFunc
	done chan error
	lost atomic.Int64
}

// A ledger checks that each work begins in a greater term than those of the shard before.
type ledger struct {
	t     *testing.T
	mu    sync.Mutex
	terms map[string]leader.Term
}

func (l *ledger) work(ctx context.Context, s shards.Shard) error {
	l.mu.Lock()
	assert.Positive(l.t, s.Term.Compare(l.terms[s.Name]), "%v of %s follows %v", s.Term, s.Name, l.terms[s.Name])
	l.terms[s.Name] = s.Term
	l.mu.Unlock()
	<-ctx.Done()
	return nil
}

func join(t *testing.T, l *ledger, identity string, store leased.Store) *member {
	t.Helper()
	m := &member{done: make(chan error, 1)}
	var err error
	m.Node, err = shards.New(shards.Config{
		Name: group, Backend: newBackend(t, store), Identity: identity, Count: count, LeaseDuration: 3 * time.Second,
		Callbacks: shards.Callbacks{OnLost: func(shards.Shard, error) { m.lost.Add(1) }},
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() { m.done <- m.Run(ctx, l.work) }()
	t.Cleanup(func() {
		if stop(); m.done != nil {
			assert.NoError(t, <-m.done)
		}
	})
	return m
}

// leave stops a node in good order.
func (m *member) leave(t *testing.T) {
	t.Helper()
	m.stop()
	require.NoError(t, <-m.done)
	m.done = nil
}

// patience is for machines that have much else to do.
const patience = 90 * time.Second

func owns(t *testing.T, numbers map[*member]int) {
	t.Helper()
	require.Eventually(t, func() bool {
		for m, n := range numbers {
			if len(m.Owned()) != n {
				return false
			}
		}
		return true
	}, patience, 10*time.Millisecond)
}

// rounds has two nodes share shards, one of them lose its way to the store, come back, and be left alone.
func rounds(t *testing.T, one, two leased.Store, cut func() (heal func())) {
	t.Helper()
	l := &ledger{t: t, terms: map[string]leader.Term{}}
	a := join(t, l, "a", one)
	owns(t, map[*member]int{a: count})
	b := join(t, l, "b", two)
	owns(t, map[*member]int{a: count / 2, b: count / 2})
	heal := cut()
	owns(t, map[*member]int{a: count, b: 0})
	require.Eventually(t, func() bool { return b.lost.Load() >= count/2 }, patience, 10*time.Millisecond)
	heal()
	owns(t, map[*member]int{a: count / 2, b: count / 2})
	a.leave(t)
	owns(t, map[*member]int{a: 0, b: count})
}

// A switched store can be cut off: what it is asked hangs until ctx ends.
type switched struct {
	lease.Store
	off atomic.Bool
}

func (s *switched) hang(ctx context.Context) error {
	if !s.off.Load() {
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (s *switched) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	if err := s.hang(ctx); err != nil {
		return lease.Lease{}, err
	}
	return s.Store.Acquire(ctx, r)
}

func (s *switched) RenewAll(ctx context.Context, all []lease.RenewRequest) ([]lease.RenewResult, error) {
	if err := s.hang(ctx); err != nil {
		return nil, err
	}
	return s.Store.(lease.BatchRenewer).RenewAll(ctx, all)
}

func (s *switched) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	if err := s.hang(ctx); err != nil {
		return lease.Lease{}, err
	}
	return s.Store.Renew(ctx, r)
}

func (s *switched) Release(ctx context.Context, c lease.Claim) error {
	if err := s.hang(ctx); err != nil {
		return err
	}
	return s.Store.Release(ctx, c)
}

func (s *switched) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	if err := s.hang(ctx); err != nil {
		return func(yield func(lease.Record, error) bool) { yield(lease.Record{}, err) }
	}
	return s.Store.List(ctx, r)
}

func TestNodesOnSQLiteOwnWhatOneThatIsCutOffHad(t *testing.T) {
	t.Parallel()
	store := openSQLite(t)
	two := &switched{Store: store}
	rounds(t, store, two, func() func() {
		two.off.Store(true)
		return func() { two.off.Store(false) }
	})
}

func TestAServerWhosePolicyIsShorterRefusesPins(t *testing.T) {
	t.Parallel()
	client, _ := dial(t, serve(t, leaseserver.Config{Store: leasetest.NewStore(), TTLPolicies: []leaseserver.TTLPolicy{{Max: time.Hour}}}))
	b := newBackend(t, client)
	err := b.Pin(t.Context(), "1", "a")
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "pinning 1 of tenants")
	require.ErrorContains(t, err, "1h0m0s")
	require.NoError(t, b.Pin(t.Context(), "1", ""))
	_, err = b.Open(t.Context(), self("a"), 2*time.Hour)
	require.ErrorIs(t, err, leader.ErrPermanent)
}

// The token is good for the leases of the group alone, and the server lets each address ask so often.
func TestNodesOfALockServerOwnWhatOneThatIsCutOffHad(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef"
	server := serve(t, leaseserver.Config{
		Store: openSQLite(t), Rate: 100, Burst: 20, Tokens: []leaseserver.Token{{Secret: secret, Right: leaseserver.Hold, Prefix: group + "/"}},
	})
	clients := make([]*leasehttp.Client, 2)
	proxies := make([]*faultproxy.Proxy, 2)
	for i := range clients {
		clients[i], proxies[i] = dialWith(t, server, secret)
	}
	rounds(t, clients[0], clients[1], func() func() {
		proxies[1].Set(faultproxy.Hold)
		return func() { proxies[1].Set(faultproxy.Pass) }
	})
}
