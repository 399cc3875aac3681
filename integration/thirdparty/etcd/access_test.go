package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
)

func TestAUserNeedsTheRightToThePrefixAlone(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	ctx := t.Context()
	withUser(t, raw(t, clientv3.Config{Endpoints: []string{address}}))
	as := func(user, password string) etcd.Config {
		return etcd.Config{Client: clientv3.Config{Endpoints: []string{address}, Username: user, Password: password}}
	}
	s := open(t, func(c *etcd.Config) { *c = as("locks", "pa55") }, address)
	l, err := s.Acquire(ctx, lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Minute, MinHold: time.Minute, LockDelay: time.Minute})
	require.NoError(t, err)
	_, err = s.Renew(ctx, lease.RenewRequest{Claim: l.Claim, TTL: 2 * time.Minute})
	require.NoError(t, err)
	r, err := s.Get(ctx, "job")
	require.NoError(t, err)
	assert.Positive(t, r.Remaining)
	require.NoError(t, s.Release(ctx, l.Claim))
	_, err = s.Sweep(ctx, lease.SweepRequest{})
	require.NoError(t, err)
	require.NoError(t, s.Health(ctx))

	for name, c := range map[string]etcd.Config{"a wrong password": as("locks", "wrong"), "no right": as("nobody", "pa55"), "no user": as("", "")} {
		_, err := etcd.Open(ctx, c)
		require.ErrorIs(t, err, etcd.ErrDenied, name)
		require.ErrorIs(t, err, lease.ErrNotReady, name)
		assert.NotContains(t, err.Error(), "pa55", name)
	}
	other := as("locks", "pa55")
	other.Prefix = "elsewhere/"
	_, err = etcd.Open(ctx, other)
	require.ErrorIs(t, err, etcd.ErrDenied)
}

func TestNobodyThereIsBusyInBoundedTime(t *testing.T) {
	t.Parallel()
	began := time.Now()
	_, err := etcd.Open(t.Context(), etcd.Config{Client: clientv3.Config{Endpoints: []string{etcdtest.FreeURL(t)}}, Timeout: 200 * time.Millisecond})
	require.ErrorIs(t, err, lease.ErrBusy)
	assert.Less(t, time.Since(began), patience/2)
	_, err = etcd.Open(t.Context(), etcd.Config{})
	require.ErrorIs(t, err, lease.ErrInvalid)
}

func TestAClosedStoreSaysSo(t *testing.T) {
	t.Parallel()
	s := open(t, nil, serve(t, etcdtest.Member{NoFsync: true}))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err := s.Get(t.Context(), "job")
	require.ErrorIs(t, err, lease.ErrClosed)
}
