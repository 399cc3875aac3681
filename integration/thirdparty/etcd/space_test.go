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
)

// fill writes until the cluster has no space left, and returns how to make it go on again.
func fill(t *testing.T, client *clientv3.Client) (mend func()) {
	t.Helper()
	eventually(t, func() bool {
		_, err := client.Put(t.Context(), "elsewhere", strings.Repeat("x", 64<<10))
		if err != nil {
			require.ErrorIs(t, err, rpctypes.ErrNoSpace)
		}
		return err != nil
	}, "etcd has all the space")
	return func() {
		t.Helper()
		if _, err := client.Compact(t.Context(), int64(revision(t, client)), clientv3.WithCompactPhysical()); err != nil {
			require.ErrorIs(t, err, rpctypes.ErrCompacted)
		}
		_, err := client.Defragment(t.Context(), client.Endpoints()[0])
		require.NoError(t, err)
		_, err = client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{Alarm: etcdserverpb.AlarmType_NONE})
		require.NoError(t, err)
	}
}

func TestWithoutSpaceNothingIsGrantedAndLeasesEndAllTheSame(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true, Quota: 4 << 20})
	client := raw(t, clientv3.Config{Endpoints: []string{address}})
	s := open(t, nil, address)
	brief, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "brief", Holder: "a", TTL: 2 * time.Second})
	require.NoError(t, err)
	lasts, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "lasts", Holder: "a", TTL: time.Hour})
	require.NoError(t, err)
	mend := fill(t, client)
	before := revision(t, client)
	for range 5 {
		_, err = s.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Minute})
		require.ErrorIs(t, err, lease.ErrBusy)
		require.ErrorContains(t, err, "no space")
		require.ErrorIs(t, s.Release(t.Context(), lasts.Claim), lease.ErrBusy)
	}
	require.ErrorIs(t, s.Health(t.Context()), lease.ErrBusy)
	require.ErrorContains(t, s.Health(t.Context()), "disarm the alarm")
	r, err := s.Get(t.Context(), "lasts")
	require.NoError(t, err)
	assert.Equal(t, lease.Held, r.State)
	_, err = s.Get(t.Context(), "job")
	require.ErrorIs(t, err, lease.ErrNotFound)
	_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: lasts.Claim, TTL: time.Hour})
	require.Error(t, err)
	eventually(t, func() bool {
		r, err := s.Get(t.Context(), "brief")
		require.NoError(t, err)
		return r.State == lease.Expired
	}, "the lease goes on")
	assert.LessOrEqual(t, revision(t, client), before+1, "nothing was stored but the end of a lease")

	mend()
	require.NoError(t, s.Health(t.Context()))
	require.ErrorIs(t, s.Release(t.Context(), brief.Claim), lease.ErrExpired)
	require.NoError(t, s.Release(t.Context(), lasts.Claim))
	assert.Greater(t, cycle(t, s, "brief"), brief.Token)
}

// etcd looks once before it does something and once while it does it. What the second look
// finds is answered with the error that it has no space, and done.
func TestWhatWasGrantedWithTheLastSpaceIsNotCalledUndone(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	for name, done := range map[string]bool{"done": true, "refused": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var full atomic.Bool
			s := intercept(t, address, func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
				if method != "/etcdserverpb.KV/Txn" || !full.Load() {
					return invoke(ctx, method, request, reply, cc, options...)
				}
				if done {
					if err := invoke(ctx, method, request, reply, cc, options...); err != nil {
						return err
					}
				}
				return rpctypes.ErrGRPCNoSpace
			})
			l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: name, Holder: "a", TTL: time.Minute})
			require.NoError(t, err)
			full.Store(true)
			_, acquired := s.Acquire(t.Context(), lease.AcquireRequest{Name: "more-" + name, Holder: "a", TTL: time.Minute})
			require.Error(t, acquired)
			released := s.Release(t.Context(), l.Claim)
			require.Error(t, released)
			full.Store(false)
			r, err := s.Get(t.Context(), name)
			require.NoError(t, err)
			if !done {
				require.ErrorIs(t, acquired, lease.ErrBusy)
				require.ErrorIs(t, released, lease.ErrBusy)
				require.ErrorContains(t, released, "no space")
				require.Equal(t, lease.Held, r.State)
				return
			}
			require.Equal(t, lease.Free, r.State, "the control: it was done")
			require.NotErrorIs(t, acquired, lease.ErrBusy)
			require.NotErrorIs(t, released, lease.ErrBusy)
			require.ErrorContains(t, released, "unknown")
		})
	}
}
