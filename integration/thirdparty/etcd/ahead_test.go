package etcd_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
)

// spare makes a store have some spare etcd leases.
func spare(t *testing.T, s *etcd.Store) {
	t.Helper()
	var all []lease.Lease
	for i := range 4 {
		l, err := s.Acquire(t.Context(), ask("spare/"+strconv.Itoa(i), ""))
		require.NoError(t, err)
		all = append(all, l)
	}
	for _, l := range all {
		require.NoError(t, s.Release(t.Context(), l.Claim))
	}
}

// A hand-over that was prepared is one transaction. A preparation that was canceled leaves its etcd
// lease to later operations.
func TestAPreparedHandOverIsOneTransaction(t *testing.T) {
	t.Parallel()
	var w wire
	address := serve(t, etcdtest.Member{NoFsync: true})
	s := w.open(t, address)
	spare(t, s)
	l, err := s.Acquire(t.Context(), ask("job", ""))
	require.NoError(t, err)
	next := ask("job", "next")

	handOver, _, err := s.PrepareHandOver(t.Context(), next)
	require.NoError(t, err)
	sent := w.during(func() {
		got, released, acquired := handOver(t.Context(), lease.ReleaseRequest{Claim: l.Claim})
		require.NoError(t, released)
		require.NoError(t, acquired)
		assert.Equal(t, l.Token+1, got.Token)
		l = got
	})
	delete(sent, "LeaseGrant") // one may be granted ahead
	assert.Equal(t, map[string]int{"Txn": 1}, sent)

	client := raw(t, clientv3.Config{Endpoints: []string{address}})
	leases := func() int {
		r, err := client.Leases(t.Context())
		require.NoError(t, err)
		return len(r.Leases)
	}
	before := leases()
	for range 20 {
		_, cancel, err := s.PrepareHandOver(t.Context(), next)
		require.NoError(t, err)
		cancel()
	}
	assert.LessOrEqual(t, leases(), before+1)

	next.LockDelay = time.Minute
	handOver, cancel, err := s.PrepareHandOver(t.Context(), next)
	require.NoError(t, err)
	assert.Nil(t, handOver)
	assert.Nil(t, cancel)
}

// The leader that renewed an etcd lease can have been replaced before the hand-over. Its successor
// counts that etcd lease from another time, so the hand-over gets another one.
func TestAPreparationUnderAnotherLeaderOfEtcdIsNotUsed(t *testing.T) {
	t.Parallel()
	var c terms
	var w wire
	s := open(t, func(config *etcd.Config) {
		config.Client.DialOptions = []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(w.unary, c.unary), grpc.WithChainStreamInterceptor(w.stream, c.stream),
		}
	}, serve(t, etcdtest.Member{NoFsync: true}))
	for _, changes := range []bool{false, true} {
		spare(t, s)
		l, err := s.Acquire(t.Context(), ask("job", ""))
		require.NoError(t, err)
		handOver, _, err := s.PrepareHandOver(t.Context(), ask("job", "next"))
		require.NoError(t, err)
		if changes {
			c.later.Add(1)
			cycle(t, s, "other") // the store learns of it
		}
		sent := w.during(func() {
			got, released, acquired := handOver(t.Context(), lease.ReleaseRequest{Claim: l.Claim})
			require.NoError(t, released)
			require.NoError(t, acquired)
			l = got
		})
		if changes {
			assert.Positive(t, sent["LeaseGrant"]+sent["LeaseKeepAlive"])
		} else {
			assert.Zero(t, sent["LeaseKeepAlive"], "the control")
		}
		require.NoError(t, s.Release(t.Context(), l.Claim))
	}
}
