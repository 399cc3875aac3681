package etcd_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
)

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
