package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
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

// A leader that was stopped revokes, when it goes on, what has expired in its eyes, and the
// leader after it does so: https://github.com/etcd-io/etcd/issues/15247.
func TestALeaderThatWasStoppedEndsNoLeaseThatTheNextOneRenewed(t *testing.T) {
	t.Parallel()
	c := startClusterOf(t, etcdtest.Member{Heartbeat: quick}, 3, 1)
	config := etcd.Config{Timeout: 500 * time.Millisecond}
	for _, m := range c.members {
		config.Client.Endpoints = append(config.Client.Endpoints, m.Address)
	}
	c.at(0, nil)(&config)
	var s *etcd.Store
	c.eventually(func() (ok bool) { // a busy machine can miss so short a timeout
		var err error
		s, err = etcd.Open(t.Context(), config)
		return err == nil
	}, "no store can be opened")
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	const ttl = time.Second
	for range 6 {
		leader := c.leader()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				holdOn(t, s, fmt.Sprint("job", i), ttl, stop)
			})
		}
		c.members[leader].Signal(syscall.SIGSTOP)
		<-time.After(2 * ttl)
		c.members[leader].Signal(syscall.SIGCONT)
		<-time.After(ttl / 2)
		close(stop)
		wg.Wait()
	}
}

// holdOn acquires and renews, and checks that no lease ends before what was granted is over.
func holdOn(t *testing.T, s lease.Store, name string, ttl time.Duration, stop <-chan struct{}) {
	t.Helper()
	var l lease.Lease
	var granted time.Time
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		select {
		case <-stop:
			_ = s.Release(t.Context(), l.Claim)
			return
		default:
		}
		sent := time.Now()
		var next lease.Lease
		var err error
		if l.Token == 0 {
			next, err = s.Acquire(t.Context(), lease.AcquireRequest{Name: name, Holder: "a", TTL: ttl})
		} else {
			next, err = s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: ttl})
		}
		if errors.Is(err, lease.ErrExpired) {
			assert.GreaterOrEqual(t, time.Since(granted), ttl, "%s ended early", name)
			l = lease.Lease{}
		}
		if err == nil {
			l, granted = next, sent
		}
	}
}

func TestManyRenewalsTakeTheTimeOfOneWhileNobodyAnswers(t *testing.T) {
	t.Parallel()
	member := etcdtest.Start(t, etcdtest.Member{Dir: filepath.Join(t.TempDir(), "etcd"), NoFsync: true})
	s := open(t, func(c *etcd.Config) { c.Timeout = 5 * time.Second }, member.Address)
	l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Hour})
	require.NoError(t, err)
	all := slices.Repeat([]lease.RenewRequest{{Claim: l.Claim, TTL: time.Hour}}, 300)
	member.Signal(syscall.SIGSTOP)
	eventually(t, func() bool { return isStopped(t, member.PID()) }, "a busy machine stops it later")
	results, err := s.RenewAll(t.Context(), all)
	require.NoError(t, err)
	require.Len(t, results, len(all))
	begun := 0
	for _, r := range results {
		require.Error(t, r.Err)
		if !strings.Contains(r.Err.Error(), "took too long") {
			begun++
			continue
		}
		require.ErrorIs(t, r.Err, lease.ErrBusy)
	}
	require.Less(t, begun, 2*64, "no second round begins")

	member.Signal(syscall.SIGCONT)
	eventually(t, func() bool {
		results, err = s.RenewAll(t.Context(), all[:1])
		return err == nil && results[0].Err == nil
	}, "nothing is renewed")
	require.NoError(t, s.Close())
	_, err = s.RenewAll(t.Context(), all)
	require.ErrorIs(t, err, lease.ErrClosed)
}

// isStopped reports whether no thread of a process runs (Linux manual, proc_pid_stat(5)).
func isStopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	require.NoError(t, err)
	require.NotEmpty(t, threads)
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		require.NoError(t, err)
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

// At a time, each of them would be in the way of the others, and some would not be done within the timeout.
func TestManyRenewalsOfOneLeaseAreNotInEachOthersWay(t *testing.T) {
	t.Parallel()
	s := open(t, nil, serve(t, etcdtest.Member{NoFsync: true}))
	l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Hour})
	require.NoError(t, err)
	all := slices.Repeat([]lease.RenewRequest{{Claim: l.Claim, TTL: time.Hour}}, 280)
	for i := range all {
		if i%14 == 0 {
			all[i].Metadata = map[string]string{"i": strconv.Itoa(i)}
		}
	}
	results, err := s.RenewAll(t.Context(), all)
	require.NoError(t, err)
	for i, r := range results {
		require.NoError(t, r.Err, i)
		require.Equal(t, map[string]string{"i": strconv.Itoa(i / 14 * 14)}, r.Lease.Metadata, "one after the other")
	}
}

// BenchmarkRenewAll renews 1,000 leases at once, on a cluster of three processes with fsync.
func BenchmarkRenewAll(b *testing.B) {
	s := openMembers(b, 3)
	var all []lease.RenewRequest
	for i := range 1000 {
		l, err := s.Acquire(b.Context(), lease.AcquireRequest{Name: strconv.Itoa(i), Holder: "a", TTL: time.Hour})
		require.NoError(b, err)
		all = append(all, lease.RenewRequest{Claim: l.Claim, TTL: time.Hour})
	}
	for b.Loop() {
		results, err := s.RenewAll(b.Context(), all)
		require.NoError(b, err)
		for _, r := range results {
			require.NoError(b, r.Err)
		}
	}
	b.ReportMetric(float64(len(all)*b.N)/b.Elapsed().Seconds(), "renewals/s")
}

// etcd says that a lock is kept for some seconds longer than its lease: that is no lock delay.
func TestALeaseThatIsEndedByForceKeepsTheLockOnlyIfItAskedForThat(t *testing.T) {
	t.Parallel()
	store := open(t, nil, serve(t, etcdtest.Member{NoFsync: true}))
	_, h := servetest.Serve(t, leaseserver.Config{Store: store, Tokens: []leaseserver.Token{{Secret: servetest.Token, Right: leaseserver.Admin, Name: "ops"}}})
	client := servetest.Client(t, h, leasehttp.ClientConfig{Token: servetest.Token})
	for name, delay := range map[string]time.Duration{"plain": 0, "delayed": time.Minute} {
		r := servetest.Ask(name, "a")
		r.LockDelay = delay
		_, err := client.Acquire(t.Context(), r)
		require.NoError(t, err)
		_, kept, err := client.ForceRelease(t.Context(), leasehttp.ForceReleaseRequest{Name: name, Reason: "its host is gone"})
		require.NoError(t, err)
		_, err = client.Acquire(t.Context(), servetest.Ask(name, "b"))
		if delay == 0 {
			require.NoError(t, err)
			assert.Zero(t, kept)
		} else {
			require.Error(t, err)
			assert.GreaterOrEqual(t, kept, delay)
		}
	}
}
