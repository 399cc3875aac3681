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
