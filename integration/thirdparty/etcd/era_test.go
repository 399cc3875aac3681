package etcd_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
)

// cycle acquires and releases, and returns the token. A request that a stopped member got may have been carried out: it has
// a key, with which it is sent again.
func cycle(t *testing.T, s lease.Store, name string) uint64 {
	t.Helper()
	var l lease.Lease
	request := lease.AcquireRequest{Name: name, Holder: "a", TTL: time.Minute, IdempotencyKey: rand.Text()}
	eventually(t, func() bool {
		var err error
		l, err = s.Acquire(t.Context(), request)
		if err != nil {
			require.True(t, !errors.Is(err, lease.ErrHeld) && !errors.Is(err, lease.ErrNotReady), "%v", err)
		}
		return err == nil
	}, "nothing is granted")
	eventually(t, func() bool {
		err := s.Release(t.Context(), l.Claim)
		require.False(t, errors.Is(err, lease.ErrStale) || errors.Is(err, lease.ErrExpired), "%v", err)
		return err == nil
	}, "nothing is released")
	return l.Token
}

// raw is a client beside the store.
func raw(tb testing.TB, c clientv3.Config) *clientv3.Client {
	tb.Helper()
	c.Logger, c.DialTimeout = zap.NewNop(), patience
	client, err := clientv3.New(c)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

func revision(t *testing.T, client *clientv3.Client) uint64 {
	t.Helper()
	r, err := client.Get(t.Context(), "x")
	require.NoError(t, err)
	return uint64(r.Header.Revision)
}

// A restored cluster has the same name, addresses and token of its members, and so the same
// ids: nothing but its log shows that it is another.
func TestTokensRiseOverARestoreOfASnapshot(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"to a store that is open": true, "to a new one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := etcdtest.Member{Name: "m0", Dir: filepath.Join(t.TempDir(), "before"), Peers: etcdtest.FreeURL(t), Clients: etcdtest.FreeURL(t), Heartbeat: quick, Token: "same"}
			_, stop, err := etcdtest.Serve(m)
			require.NoError(t, err)
			s := open(t, nil, m.Clients)
			for range 100 {
				cycle(t, s, "job")
			}
			file := saveSnapshot(t, m.Clients)
			var last uint64
			for range 50 {
				last = cycle(t, s, "job")
			}
			before := revision(t, raw(t, clientv3.Config{Endpoints: []string{m.Clients}}))
			stop()

			m.Dir = filepath.Join(t.TempDir(), "after")
			require.NoError(t, snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
				SnapshotPath: file, Name: m.Name, OutputDataDir: m.Dir, PeerURLs: []string{m.Peers}, InitialCluster: "m0=" + m.Peers, InitialClusterToken: m.Token,
			}))
			_, stop, err = etcdtest.Serve(m)
			require.NoError(t, err)
			defer stop()
			require.Less(t, revision(t, raw(t, clientv3.Config{Endpoints: []string{m.Clients}})), before, "the control: revisions alone repeat")
			if !known {
				s = open(t, nil, m.Clients)
			}
			first := cycle(t, s, "job")
			assert.Greater(t, first, last)
			assert.Greater(t, cycle(t, s, "job"), first)
			assert.Less(t, cycle(t, s, "job"), last+1<<41, "one era is enough")
		})
	}
}

func saveSnapshot(t *testing.T, endpoint string) string {
	t.Helper()
	r, err := raw(t, clientv3.Config{Endpoints: []string{endpoint}}).Snapshot(t.Context())
	require.NoError(t, err)
	file, err := os.Create(filepath.Join(t.TempDir(), "snapshot.db"))
	require.NoError(t, err)
	_, err = io.Copy(file, r)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	return file.Name()
}

// The survivor of a cluster that lost its majority goes on alone, without what it had missed.
func TestTokensRiseOverForceNewCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	s := c.store(0, nil)
	cycle(t, s, "job")
	behind := (c.leader() + 1) % 3
	c.members[behind].Signal(syscall.SIGSTOP)
	var last uint64
	for range 30 {
		last = cycle(t, s, "job")
	}
	configure := c.at(0, nil)
	var alone etcd.Config
	configure(&alone)
	before := revision(t, raw(t, clientv3.Config{Endpoints: []string{c.members[(behind+1)%3].Address}, DialOptions: alone.Client.DialOptions}))
	for i, m := range c.members {
		if i != behind {
			m.Kill()
		}
	}
	survivor := c.members[behind]
	survivor.Kill()
	survivor.Member.Force = true
	survivor.Start()
	client := raw(t, clientv3.Config{Endpoints: []string{survivor.Address}, DialOptions: alone.Client.DialOptions})
	var now uint64
	eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := client.Get(ctx, "x")
		if err == nil {
			now = uint64(r.Header.Revision)
		}
		return err == nil
	}, "the survivor does not go on")
	require.Less(t, now, before, "the control: revisions alone repeat")
	assert.Greater(t, cycle(t, open(t, configure, survivor.Address), "another"), last)
}

func TestTokensRiseOverACompactionAndARestart(t *testing.T) {
	t.Parallel()
	m := etcdtest.Member{Name: "m0", Dir: filepath.Join(t.TempDir(), "etcd"), Peers: etcdtest.FreeURL(t), Clients: etcdtest.FreeURL(t), Heartbeat: quick}
	_, stop, err := etcdtest.Serve(m)
	require.NoError(t, err)
	s := open(t, nil, m.Clients)
	last := cycle(t, s, "job")
	client := raw(t, clientv3.Config{Endpoints: []string{m.Clients}})
	_, err = client.Compact(t.Context(), int64(revision(t, client)), clientv3.WithCompactPhysical())
	require.NoError(t, err)
	next := cycle(t, s, "job")
	assert.Greater(t, next, last)
	stop()
	_, stop, err = etcdtest.Serve(m)
	require.NoError(t, err)
	defer stop()
	again := cycle(t, s, "job")
	assert.Greater(t, again, next)
	assert.Less(t, again, next+100, "nothing was forgotten, so no era has begun")
}

// A member that joins ends no connection of those who are there.
func TestAStoreThatStaysConnectedGoesOnInTheEraThatAnotherBegan(t *testing.T) {
	t.Parallel()
	address, stop, err := etcdtest.Serve(etcdtest.Member{Dir: t.TempDir(), Heartbeat: quick})
	require.NoError(t, err)
	defer stop()
	stays := open(t, nil, address)
	before := cycle(t, stays, "job")
	_, err = raw(t, clientv3.Config{Endpoints: []string{address}}).MemberAddAsLearner(t.Context(), []string{etcdtest.FreeURL(t)})
	require.NoError(t, err)
	begun := cycle(t, open(t, nil, address), "job")
	require.Greater(t, begun, before+1<<39, "the control: the other one began an era")

	l, err := stays.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Minute})
	require.NoError(t, err)
	assert.Greater(t, l.Token, begun)
}

// intercept opens a store whose calls go through f.
func intercept(t *testing.T, address string, f grpc.UnaryClientInterceptor, options ...grpc.DialOption) *etcd.Store {
	t.Helper()
	return open(t, func(c *etcd.Config) {
		c.Timeout = patience
		c.Client.DialOptions = append(options, grpc.WithChainUnaryInterceptor(f))
	}, address)
}

func TestAChangeWhileTheEraIsFoundOutBeginsNone(t *testing.T) {
	t.Parallel()
	address, stop, err := etcdtest.Serve(etcdtest.Member{Dir: t.TempDir(), Heartbeat: quick})
	require.NoError(t, err)
	defer stop()
	var slow atomic.Bool
	sent, asks, goOn, answer := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	conns := make(chan net.Conn, 100)
	s := intercept(t, address, func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if slow.Load() {
			switch method {
			case "/etcdserverpb.KV/Txn":
				close(sent)
				<-goOn
			case "/etcdserverpb.Cluster/MemberList":
				close(asks)
				<-answer
			}
		}
		return invoke(ctx, method, request, reply, cc, options...)
	}, grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(target, "http://"))
		if err == nil {
			conns <- c
		}
		return c, err
	}))
	before := cycle(t, s, "job")
	slow.Store(true)
	first, second := make(chan error, 1), make(chan error, 1)
	acquire := func(name string, done chan<- error) {
		_, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: name, Holder: "a", TTL: time.Minute})
		done <- err
	}
	go acquire("first", first)
	<-sent
	for len(conns) > 0 {
		_ = (<-conns).Close()
	}
	go acquire("second", second)
	<-asks
	slow.Store(false)
	close(goOn)
	require.NoError(t, <-first)
	close(answer)
	require.NoError(t, <-second)
	assert.Less(t, cycle(t, s, "job"), before+1<<39)
}

// What etcd has ended by the time that its new leader is asked is not held.
func TestALeaseThatEndedWhileTheLeaderChangedIsNotGranted(t *testing.T) {
	t.Parallel()
	address, stop, err := etcdtest.Serve(etcdtest.Member{Dir: t.TempDir(), Heartbeat: quick})
	require.NoError(t, err)
	defer stop()
	client := raw(t, clientv3.Config{Endpoints: []string{address}})
	var ends atomic.Bool
	s := intercept(t, address, func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, method, request, reply, cc, options...)
		if answer, ok := reply.(*etcdserverpb.TxnResponse); ok && err == nil && ends.Swap(false) {
			answer.Header.RaftTerm++ // as from another leader
			all, err := client.Leases(ctx)
			if err != nil {
				return err
			}
			for _, l := range all.Leases {
				if _, err := client.Revoke(ctx, l.ID); err != nil {
					return err
				}
			}
		}
		return err
	})
	cycle(t, s, "other")
	ends.Store(true)
	_, err = s.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Minute})
	require.Error(t, err)
	assert.NotErrorIs(t, err, lease.ErrBusy, "it was done")
	r, err := s.Get(t.Context(), "job")
	require.NoError(t, err)
	assert.NotEqual(t, lease.Held, r.State)
}

func TestALeaseOutlivesTwoOfThreeMachinesIfEachIsReplaced(t *testing.T) {
	t.Parallel()
	members := etcdtest.StartCluster(t, t.TempDir(), 3)
	(&cluster{t: t, members: members}).leader() // until then nobody is served
	replacement := etcdtest.Member{Name: "m4", Dir: filepath.Join(t.TempDir(), "m4"), Peers: etcdtest.FreeURL(t), Clients: etcdtest.FreeURL(t), Joins: true}
	store := open(t, nil, members[0].Address, members[1].Address, members[2].Address, replacement.Clients)
	first, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Hour})
	require.NoError(t, err)
	goesOn := func() {
		t.Helper()
		eventually(t, func() bool {
			_, err := store.Renew(t.Context(), lease.RenewRequest{Claim: first.Claim, TTL: time.Hour})
			require.NotErrorIs(t, err, lease.ErrStale)
			return err == nil
		}, "nobody is served")
		eventually(t, func() bool {
			_, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "b", TTL: time.Hour})
			require.Error(t, err)
			return errors.Is(err, lease.ErrHeld)
		}, "nobody is refused")
	}
	lose := func(m *etcdtest.Process) {
		t.Helper()
		m.Kill()
		require.NoError(t, os.RemoveAll(m.Member.Dir))
	}

	lose(members[0])
	goesOn()
	members = append(members, replace(t, members[0], replacement, members[1:]))
	goesOn()

	lose(members[1])
	goesOn()
	eventually(t, func() bool { return store.Release(t.Context(), first.Claim) == nil }, "nothing is released")
	var next lease.Lease
	eventually(t, func() bool {
		next, err = store.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "b", TTL: time.Hour, IdempotencyKey: "1"})
		return err == nil
	}, "nothing is granted")
	assert.Greater(t, next.Token, first.Token)
}

// replace has the others take a new member for one that is lost, and starts it.
func replace(t *testing.T, lost *etcdtest.Process, by etcdtest.Member, others []*etcdtest.Process) *etcdtest.Process {
	t.Helper()
	admin, err := clientv3.New(clientv3.Config{Endpoints: []string{others[0].Address, others[1].Address}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer admin.Close()
	eventually(t, func() bool {
		all, err := admin.MemberList(t.Context())
		if err != nil {
			return false
		}
		gone := slices.IndexFunc(all.Members, func(m *etcdserverpb.Member) bool { return m.Name == lost.Member.Name })
		if gone >= 0 {
			_, err = admin.MemberRemove(t.Context(), all.Members[gone].ID)
		}
		return err == nil
	}, "it is not removed")
	eventually(t, func() bool {
		_, err := admin.MemberAdd(t.Context(), []string{by.Peers})
		return err == nil
	}, "no other takes its place")
	by.Cluster = strings.Replace(lost.Member.Cluster, lost.Member.Name+"="+lost.Member.Peers, by.Name+"="+by.Peers, 1)
	replaced := etcdtest.Start(t, by)
	eventually(t, func() bool {
		s, err := admin.Status(t.Context(), replaced.Address)
		return err == nil && !s.IsLearner && len(s.Errors) == 0
	}, "it does not join")
	return replaced
}
