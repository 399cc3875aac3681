package etcd_test

import (
	"context"
	"strings"
	"sync"
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
)

// Nobody knows the era after a new connection; who asks for it has all the time.
func TestAnOperationEndsWithItsCtxWhileAnotherOneFindsOutTheEra(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	var slow atomic.Bool
	asks, answer, granted := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once, grants sync.Once
	var d dialer
	s := intercept(t, address, func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if slow.Load() && method == "/etcdserverpb.Cluster/MemberList" {
			once.Do(func() { close(asks) })
			<-answer
		}
		err := invoke(ctx, method, request, reply, cc, options...)
		select {
		case <-asks:
			if r, ok := request.(*etcdserverpb.LeaseGrantRequest); ok && r.TTL == 180 {
				grants.Do(func() { close(granted) })
			}
		default:
		}
		return err
	}, grpc.WithContextDialer(d.dial))
	cycle(t, s, "job")
	slow.Store(true)
	d.set(true)
	d.set(false)
	acquire := func(ctx context.Context, name string, ttl time.Duration) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := s.Acquire(ctx, lease.AcquireRequest{Name: name, Holder: "a", TTL: ttl})
			done <- err
		}()
		return done
	}
	first := acquire(t.Context(), "first", 2*time.Minute)
	<-asks
	ctx, cancel := context.WithCancel(t.Context())
	second := acquire(ctx, "second", 3*time.Minute)
	<-granted // all that it needs but for the era
	cancel()
	select {
	case err := <-second:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(patience / 4):
		assert.Fail(t, "it waits for the other one")
	}
	close(answer)
	require.NoError(t, <-first)
}

// A deaf stream loses the answers of etcd while it is on.
type deaf struct {
	on   atomic.Bool
	lost chan int64 // the seconds that a lease then has
}

type deafStream struct {
	grpc.ClientStream
	deaf *deaf
}

func (s deafStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if answer, ok := m.(*etcdserverpb.LeaseKeepAliveResponse); ok && err == nil && s.deaf.on.Load() {
		s.deaf.lost <- answer.TTL
		<-s.Context().Done()
		return s.Context().Err()
	}
	return err
}

func (d *deaf) intercept(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, cc, method, options...)
	if err == nil && strings.HasSuffix(method, "/LeaseKeepAlive") {
		return deafStream{stream, d}, nil
	}
	return stream, err
}

// A busy store has done nothing: that is a promise.
func TestARenewalWhoseAnswerFromEtcdWasLostIsNotCalledUndone(t *testing.T) {
	t.Parallel()
	d := &deaf{lost: make(chan int64, 100)}
	s := open(t, func(c *etcd.Config) {
		c.Timeout = 6 * time.Second
		c.Client.DialOptions = []grpc.DialOption{grpc.WithChainStreamInterceptor(d.intercept)}
	}, serve(t, etcdtest.Member{NoFsync: true}))
	l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: 40 * time.Second})
	require.NoError(t, err)
	d.on.Store(true)
	for len(d.lost) == 0 {
		_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: 40 * time.Second})
	}
	d.on.Store(false)
	require.Error(t, err)
	require.EqualValues(t, 40, <-d.lost, "the control: it was done")
	assert.NotErrorIs(t, err, lease.ErrBusy)
	assert.ErrorContains(t, err, "unknown")
	_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: 40 * time.Second})
	require.NoError(t, err)
}

// While a leader is chosen a member says so at once to some questions; another may know one.
func TestAStoreIsOpenedThoughAMemberKnowsNoLeaderAtFirst(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := intercept(t, serve(t, etcdtest.Member{NoFsync: true}), func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if strings.HasSuffix(method, "/Status") && asked.Add(1) < 3 {
			return rpctypes.ErrGRPCNoLeader
		}
		return invoke(ctx, method, request, reply, cc, options...)
	})
	require.Greater(t, asked.Load(), int64(2))
	cycle(t, s, "job")
}

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
