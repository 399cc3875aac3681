package etcd_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
)

// parts returns how many changes share a transaction; 0 = it is no change, or only one.
func parts(request any) (n int) {
	r, ok := request.(*etcdserverpb.TxnRequest)
	if !ok {
		return 0
	}
	for _, o := range r.Success {
		if o.GetRequestTxn() != nil {
			n++
		}
	}
	return n
}

// A crossing is the way of shared transactions to etcd, on which a test can do something to them.
type crossing struct {
	mu   sync.Mutex
	does func(ctx context.Context, r *etcdserverpb.TxnRequest, reply *etcdserverpb.TxnResponse, send func() error) error
}

func (c *crossing) set(does func(ctx context.Context, r *etcdserverpb.TxnRequest, reply *etcdserverpb.TxnResponse, send func() error) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.does = does
}

func (c *crossing) unary(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	c.mu.Lock()
	does := c.does
	c.mu.Unlock()
	send := func() error { return invoke(ctx, method, request, reply, cc, options...) }
	if does == nil || parts(request) == 0 {
		return send()
	}
	return does(ctx, request.(*etcdserverpb.TxnRequest), reply.(*etcdserverpb.TxnResponse), send)
}

const crowd = 30

// rush has many goroutines call f at the same time, each with a name.
func rush(round int, f func(name string)) {
	var wg sync.WaitGroup
	for i := range crowd {
		wg.Go(func() { f("job/" + strconv.Itoa(round) + "/" + strconv.Itoa(i)) })
	}
	wg.Wait()
}

// rounds calls f until it reports that what it is about has happened: whether goroutines share a
// request depends on when they run.
func rounds(t *testing.T, f func(round int) bool) {
	t.Helper()
	for round := range 200 {
		if f(round) {
			return
		}
	}
	require.Fail(t, "nothing was shared")
}

func TestAChangeWhoseComparisonFailsFailsNoOtherOfItsTransaction(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	var c crossing
	s, other := intercept(t, address, c.unary), open(t, nil, address)
	rounds(t, func(round int) bool {
		rush(round, func(name string) { cycle(t, s, name) }) // so that s decides without a read
		rush(round, func(name string) {
			if strings.HasSuffix(name, "3") {
				_, err := other.Acquire(t.Context(), lease.AcquireRequest{Name: name, Holder: "b", TTL: time.Minute})
				assert.NoError(t, err)
			}
		})
		var mixed atomic.Bool
		c.set(func(_ context.Context, _ *etcdserverpb.TxnRequest, reply *etcdserverpb.TxnResponse, send func() error) error {
			err := send()
			succeeded := 0
			for _, r := range reply.Responses {
				if r.GetResponseTxn().Succeeded {
					succeeded++
				}
			}
			if err == nil && succeeded > 0 && succeeded < len(reply.Responses) {
				mixed.Store(true)
			}
			return err
		})
		defer c.set(nil)
		rush(round, func(name string) {
			l, err := s.Acquire(t.Context(), ask(name, ""))
			if strings.HasSuffix(name, "3") {
				assert.ErrorIs(t, err, lease.ErrHeld)
				return
			}
			assert.NoError(t, err)
			assert.NoError(t, s.Release(t.Context(), l.Claim))
		})
		return mixed.Load()
	})
}

// What became of a shared transaction is unknown to each of its callers, and a key tells each.
func TestEachCallerOfASharedTransactionWithoutAnswerLearnsTheOutcomeByItsKey(t *testing.T) {
	t.Parallel()
	lost := errors.New("the answer is lost")
	for name, isSent := range map[string]bool{"done": true, "not done": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := serve(t, etcdtest.Member{NoFsync: true})
			var c crossing
			s, other := intercept(t, address, c.unary), open(t, nil, address)
			rounds(t, func(round int) bool {
				var once atomic.Bool
				c.set(func(_ context.Context, _ *etcdserverpb.TxnRequest, _ *etcdserverpb.TxnResponse, send func() error) error {
					if !once.CompareAndSwap(false, true) {
						return send()
					}
					if isSent {
						if err := send(); err != nil {
							return err
						}
					}
					return lost
				})
				var unknown atomic.Int64
				rush(round, func(name string) {
					l, err := s.Acquire(t.Context(), ask(name, "k"))
					if err != nil {
						unknown.Add(1)
						assert.NotErrorIs(t, err, lease.ErrBusy)
						assert.NotErrorIs(t, err, lease.ErrHeld)
						assert.ErrorContains(t, err, "unknown")
						r, failure := other.Get(t.Context(), name)
						assert.Equal(t, isSent, failure == nil, "the control: %v", failure)
						l, err = s.Acquire(t.Context(), ask(name, "k"))
						if isSent {
							assert.Equal(t, r.Claim, l.Claim, "it is the one of the first call")
						}
					}
					assert.NoError(t, err)
					_, err = other.Acquire(t.Context(), ask(name, "another"))
					assert.ErrorIs(t, err, lease.ErrHeld)
					assert.NoError(t, s.Release(t.Context(), l.Claim))
				})
				return unknown.Load() > 1
			})
		})
	}
}

func TestACallerThatLeavesDuringASharedTransactionFailsNoOther(t *testing.T) {
	t.Parallel()
	var c crossing
	s := intercept(t, serve(t, etcdtest.Member{NoFsync: true}), c.unary)
	rounds(t, func(round int) bool {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		var left, stayed atomic.Int64
		gone := make(chan struct{})
		c.set(func(_ context.Context, _ *etcdserverpb.TxnRequest, _ *etcdserverpb.TxnResponse, send func() error) error {
			leave()
			<-gone // it is under way until those have left that do
			return send()
		})
		defer c.set(nil)
		var leaving sync.WaitGroup
		leaving.Add(crowd / 10)
		go func() {
			leaving.Wait()
			close(gone)
		}()
		rush(round, func(name string) {
			if strings.HasSuffix(name, "3") {
				_, err := s.Acquire(ctx, ask(name, ""))
				if err != nil {
					left.Add(1)
					assert.ErrorIs(t, err, context.Canceled)
				}
				leaving.Done()
				return
			}
			_, err := s.Acquire(t.Context(), ask(name, ""))
			assert.NoError(t, err)
			stayed.Add(1)
		})
		return left.Load() > 0 && stayed.Load() == crowd-crowd/10
	})
}

// The size of a request to etcd is limited to 1.5 MB, and the number of operations to 128.
func TestMoreThanEtcdAllowsInARequestIsSentInSeveral(t *testing.T) {
	t.Parallel()
	var c crossing
	var most atomic.Int64
	s := intercept(t, serve(t, etcdtest.Member{NoFsync: true}), c.unary)
	c.set(func(_ context.Context, r *etcdserverpb.TxnRequest, _ *etcdserverpb.TxnResponse, send func() error) error {
		most.Store(max(most.Load(), int64(len(r.Success))))
		return send()
	})
	large := map[string]string{"text": strings.Repeat("x", 3<<10)}
	var wg sync.WaitGroup
	for i := range 600 {
		wg.Go(func() {
			r := ask("job/"+strconv.Itoa(i), "")
			r.LockDelay, r.MinHold, r.MaxLifetime = time.Minute, time.Minute, time.Hour // operations
			if i%2 == 0 {
				r.Metadata = large
			}
			_, err := s.Acquire(t.Context(), r)
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	require.Positive(t, most.Load())
}

// A renewer can lose the renewals of etcd leases: it answers them itself.
type renewer struct{ loses atomic.Bool }

type renewal struct {
	grpc.ClientStream
	renewer *renewer
	sent    chan *etcdserverpb.LeaseKeepAliveRequest
}

func (r *renewer) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, cc, method, options...)
	if err == nil && strings.HasSuffix(method, "/LeaseKeepAlive") {
		return &renewal{stream, r, make(chan *etcdserverpb.LeaseKeepAliveRequest, 1)}, nil
	}
	return stream, err
}

func (s *renewal) SendMsg(m any) error {
	if s.renewer.loses.Load() {
		s.sent <- m.(*etcdserverpb.LeaseKeepAliveRequest)
		return nil
	}
	return s.ClientStream.SendMsg(m)
}

func (s *renewal) RecvMsg(m any) error {
	select {
	case r := <-s.sent:
		*m.(*etcdserverpb.LeaseKeepAliveResponse) = etcdserverpb.LeaseKeepAliveResponse{
			Header: &etcdserverpb.ResponseHeader{RaftTerm: 2}, ID: r.ID, TTL: 60,
		}
		return nil
	default:
		return s.ClientStream.RecvMsg(m)
	}
}

// An etcd lease that was granted ahead ages, and can end, before a lock needs it.
func TestALockHasNoEtcdLeaseThatAgedOrEndedBeforeItWasNeeded(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	client := raw(t, clientv3.Config{Endpoints: []string{address}})
	var r renewer
	s := open(t, func(c *etcd.Config) {
		c.Timeout = patience
		c.Client.DialOptions = []grpc.DialOption{grpc.WithChainStreamInterceptor(r.stream)}
	}, address)
	const ttl = 20
	left := func(id clientv3.LeaseID) int64 {
		l, err := client.TimeToLive(t.Context(), id)
		require.NoError(t, err)
		return l.TTL
	}
	spare := func() (ids []clientv3.LeaseID) {
		all, err := client.Leases(t.Context())
		require.NoError(t, err)
		for _, l := range all.Leases {
			ids = append(ids, l.ID)
		}
		return ids
	}
	acquire := func(name string) (l lease.Lease, id clientv3.LeaseID) {
		l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: name, Holder: "a", TTL: ttl * time.Second})
		require.NoError(t, err)
		kv, err := client.Get(t.Context(), etcd.DefaultPrefix+name+"\x00h")
		require.NoError(t, err)
		require.Len(t, kv.Kvs, 1, "the lock has a lease that goes on")
		return l, clientv3.LeaseID(kv.Kvs[0].Lease)
	}
	first, _ := acquire("first")
	require.NoError(t, s.Release(t.Context(), first.Claim))
	eventually(t, func() bool { return len(spare()) == 2 }, "none is granted ahead")
	aged := spare()
	eventually(t, func() bool { return left(aged[0]) <= ttl-8 && left(aged[1]) <= ttl-8 }, "they do not age")

	r.loses.Store(true)
	l, id := acquire("the control")
	require.LessOrEqual(t, left(id), int64(ttl-8), "the control: without the renewal the lock ends early")
	r.loses.Store(false)
	require.NoError(t, s.Release(t.Context(), l.Claim))
	l, id = acquire("aged")
	require.Contains(t, aged, id)
	require.GreaterOrEqual(t, left(id), int64(ttl-5))
	require.NoError(t, s.Release(t.Context(), l.Claim))

	end := func() {
		for _, id := range spare() {
			_, err := client.Revoke(t.Context(), id)
			require.NoError(t, err)
		}
	}
	end()
	l, id = acquire("ended")
	require.NotContains(t, aged, id)
	require.GreaterOrEqual(t, left(id), int64(ttl-5))
	require.NoError(t, s.Release(t.Context(), l.Claim))
	end()
	r.loses.Store(true) // even who takes it for one that goes on cannot use it
	_, id = acquire("ended, and unnoticed")
	require.GreaterOrEqual(t, left(id), int64(ttl-5))
}

// An operation waits for no other one that etcd does not answer.
func TestOperationsThatHangAreInNobodysWay(t *testing.T) {
	t.Parallel()
	goOn, hangs := make(chan struct{}), make(chan struct{}, 10)
	s := intercept(t, serve(t, etcdtest.Member{NoFsync: true}), func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if r, ok := request.(*etcdserverpb.TxnRequest); ok && len(r.Compare) > 0 && strings.Contains(string(r.Compare[0].Key), "/hangs") {
			hangs <- struct{}{}
			<-goOn
		}
		return invoke(ctx, method, request, reply, cc, options...)
	})
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			_, err := s.Acquire(t.Context(), ask("hangs"+strconv.Itoa(i), ""))
			assert.NoError(t, err)
		})
		<-hangs
	}
	cycle(t, s, "job")
	close(goOn)
	wg.Wait()
}

// Many renewals share an etcd lease, but each lock ends by itself.
func TestLocksThatWereRenewedTogetherEndEachForItself(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	client := raw(t, clientv3.Config{Endpoints: []string{address}})
	s, other := open(t, nil, address), open(t, nil, address)
	rounds(t, func(round int) bool {
		var mu sync.Mutex
		var all []lease.RenewRequest
		rush(round, func(name string) {
			l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: name, Holder: "a", TTL: 10 * time.Second})
			if assert.NoError(t, err) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, lease.RenewRequest{Claim: l.Claim, TTL: 10 * time.Second})
			}
		})
		require.Len(t, all, crowd)
		results, err := s.RenewAll(t.Context(), all)
		require.NoError(t, err)
		leases := make(map[int64]int)
		for i, r := range results {
			require.NoError(t, r.Err)
			kv, err := client.Get(t.Context(), etcd.DefaultPrefix+all[i].Name+"\x00h")
			require.NoError(t, err)
			require.Len(t, kv.Kvs, 1)
			leases[kv.Kvs[0].Lease]++
		}
		if len(leases) > crowd/2 {
			return false
		}
		abandoned, kept := all[0], all[1:]
		require.NoError(t, other.Release(t.Context(), kept[0].Claim), "another store can end one of them")
		kept = kept[1:]
		eventually(t, func() bool {
			results, err := s.RenewAll(t.Context(), kept)
			require.NoError(t, err)
			for _, r := range results {
				require.NoError(t, r.Err)
			}
			r, err := other.Get(t.Context(), abandoned.Name)
			require.NoError(t, err)
			return r.State == lease.Expired
		}, "it goes on with the others")
		_, err = s.Renew(t.Context(), abandoned)
		require.ErrorIs(t, err, lease.ErrExpired)
		for _, k := range kept {
			require.NoError(t, other.Release(t.Context(), k.Claim))
		}
		return true
	})
}
