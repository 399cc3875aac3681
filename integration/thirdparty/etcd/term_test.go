package etcd_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// terms makes a member's answers be of later terms of etcd's leaders than they are.
type terms struct {
	later  atomic.Uint64
	grants atomic.Int64 // of etcd leases
	during atomic.Bool  // the term changes during the next transaction
	last   atomic.Bool  // nothing is answered after that
	away   atomic.Bool
	ahead  atomic.Int64 // by how much the wall clock is
}

func (c *terms) add(reply any) {
	if r, ok := reply.(interface {
		GetHeader() *etcdserverpb.ResponseHeader
	}); ok && r.GetHeader() != nil {
		r.GetHeader().RaftTerm += c.later.Load()
	}
}

func (c *terms) unary(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if c.away.Load() {
		return rpctypes.ErrGRPCRequestTooManyRequests
	}
	err := invoke(ctx, method, request, reply, cc, options...)
	switch {
	case strings.HasSuffix(method, "/LeaseGrant"):
		c.grants.Add(1)
	case strings.HasSuffix(method, "/Txn") && c.during.CompareAndSwap(true, false):
		c.later.Add(1)
		c.away.Store(c.last.Load())
	}
	if err == nil {
		c.add(reply)
	}
	return err
}

type termsStream struct {
	grpc.ClientStream
	terms *terms
}

func (s termsStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		s.terms.add(m)
	}
	return err
}

func (c *terms) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, cc, method, options...)
	return termsStream{stream, c}, err
}

func (c *terms) open(t *testing.T, address string) *etcd.Store {
	t.Helper()
	return open(t, func(config *etcd.Config) {
		config.Wall = func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
		config.Client.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(c.unary), grpc.WithChainStreamInterceptor(c.stream)}
	}, address)
}

// An earlier leader that was stopped ends what it counted when it goes on.
func TestARenewalUnderAnotherLeaderOfEtcdHasNewEtcdLeases(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	client := raw(t, clientv3.Config{Endpoints: []string{address}})
	var c terms
	s := c.open(t, address)
	request := lease.AcquireRequest{
		Name: "job", Holder: "a", TTL: time.Minute, IdempotencyKey: "1",
		LockDelay: time.Minute, MinHold: time.Minute, MaxLifetime: time.Hour,
	}
	l, err := s.Acquire(t.Context(), request)
	require.NoError(t, err)
	expires := l.ExpiresAt
	attached := func() map[string]int64 {
		r, err := client.Get(t.Context(), etcd.DefaultPrefix+"job\x00", clientv3.WithRange(etcd.DefaultPrefix+"job\x01"))
		require.NoError(t, err)
		all := map[string]int64{}
		for _, kv := range r.Kvs {
			if kv.Lease != 0 {
				all[string(kv.Key[len(kv.Key)-1])] = kv.Lease
			}
		}
		require.Len(t, all, 4)
		return all
	}
	for _, does := range []struct {
		name string
		f    func() (lease.Lease, error)
	}{
		{"acquire again", func() (lease.Lease, error) {
			again, err := s.Acquire(t.Context(), request)
			assert.Equal(t, expires, again.ExpiresAt, "it is asked for, not renewed")
			return again, err
		}},
		{"renew", func() (lease.Lease, error) {
			return s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: time.Minute})
		}},
		{"renew for less", func() (lease.Lease, error) {
			return s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: 30 * time.Second})
		}},
		{"renew many", func() (lease.Lease, error) {
			results, err := s.RenewAll(t.Context(), []lease.RenewRequest{{Claim: l.Claim, TTL: time.Minute}})
			require.NoError(t, err)
			return results[0].Lease, results[0].Err
		}},
	} {
		before := attached()
		c.later.Add(1)
		got, err := does.f()
		require.NoError(t, err, does.name)
		require.Equal(t, l.Claim, got.Claim, does.name)
		require.Greater(t, got.Remaining, 50*time.Second, "%s: no less is left", does.name)
		after := attached()
		for _, kind := range []string{"h", "d", "l"} {
			require.NotEqual(t, before[kind], after[kind], "%s: %s", does.name, kind)
		}
		require.Equal(t, before["k"], after["k"], does.name)

		_, err = does.f()
		require.NoError(t, err, does.name)
		require.Equal(t, after, attached(), "once in a term")
	}
}

// What is done again because etcd's leader changed was done, and a busy store has done nothing.
func TestAChangeDuringWhichEtcdsLeaderChangedIsNotCalledUndone(t *testing.T) {
	t.Parallel()
	var c terms
	history := leasetest.NewHistory()
	s := history.Client(c.open(t, serve(t, etcdtest.Member{NoFsync: true})))
	l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Minute})
	require.NoError(t, err)
	c.ahead.Store(int64(time.Hour)) // each renewal is the moment before the end, and the next one after that
	c.during.Store(true)
	_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: time.Minute})
	require.NoError(t, err)
	require.False(t, c.during.Load(), "the control: it is done once more")
	c.last.Store(true)
	c.during.Store(true)
	_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: 2 * time.Minute})
	require.Error(t, err)
	assert.NotErrorIs(t, err, lease.ErrBusy)
	require.ErrorContains(t, err, "unknown")
	c.away.Store(false)
	r, err := s.Get(t.Context(), "job")
	require.NoError(t, err)
	require.True(t, r.ExpiresAt.After(l.ExpiresAt.Add(30*time.Second)), "the control: it was done")
	_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: 2 * time.Minute})
	require.NoError(t, err)

	require.NoError(t, s.Release(t.Context(), l.Claim))
	grants := c.grants.Load()
	c.during.Store(true)
	request := lease.AcquireRequest{Name: "job", Holder: "a", TTL: 2 * time.Minute, IdempotencyKey: "1"}
	_, err = s.Acquire(t.Context(), request)
	require.ErrorContains(t, err, "leader was replaced", "the control: an etcd lease is used again")
	assert.NotErrorIs(t, err, lease.ErrBusy)
	require.ErrorContains(t, err, "unknown")
	c.away.Store(false)
	_, err = s.Acquire(t.Context(), request)
	require.NoError(t, err)
	require.Greater(t, c.grants.Load(), grants)
	require.NoError(t, history.Check(patience))
}
