package etcd_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
)

// newPeers are three servers, of which the first is active.
func newPeers(tb testing.TB, poll time.Duration, endpoints ...string) []servetest.Peer {
	tb.Helper()
	return servetest.NewPeers(tb, poll, open(tb, nil, endpoints...), open(tb, nil, endpoints...), open(tb, nil, endpoints...))
}

func TestWaitersAtAnyServerAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	servetest.RequireOneOrder(t, newPeers(t, -1, serve(t, etcdtest.Member{NoFsync: true})))
}

// Nobody is active, and nobody polls.
func TestAReleaseAtOneServerWakesTheWaiterAtAnother(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	a, b := servetest.NewPeer(t, open(t, nil, address), -1), servetest.NewPeer(t, open(t, nil, address), -1)
	servetest.AwaitMessages(t, a, b)
	servetest.AwaitMessages(t, b, a)
}

func TestWithoutMessagesAWaiterAtAnotherServerLearnsNothingOfARelease(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	servetest.RequireNoOrder(t, open(t, nil, address), open(t, nil, address))
}

// Without an election, a queue that never ends starves no waiter of another server.
func TestServersWithoutAnElectionTakeTurns(t *testing.T) {
	t.Parallel()
	address, poll := serve(t, etcdtest.Member{NoFsync: true}), 200*time.Millisecond
	servetest.Turns(t, servetest.NewSingle(t, open(t, nil, address), poll), servetest.NewSingle(t, open(t, nil, address), poll), patience)
}

// listen returns when m is listened to, and what was heard and how it ended.
func listen(t *testing.T, m lease.Messenger) (heard <-chan string, ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	all, end, ready := make(chan string, 1000), make(chan error, 1), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		end <- m.Listen(ctx, func() { close(ready) }, func(message string) { all <- message })
	})
	t.Cleanup(wg.Wait)
	t.Cleanup(cancel)
	select {
	case <-ready:
	case err := <-end:
		require.NoError(t, err)
	}
	return all, end
}

func ending(t *testing.T, ended <-chan error) error {
	t.Helper()
	return await.Receive(t, patience, ended, "it goes on to listen")
}

// dialer connects unless it was cut.
type dialer struct {
	mu    sync.Mutex
	conns []net.Conn
	cut   bool
}

func (d *dialer) dial(ctx context.Context, target string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(target, "http://"))
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cut {
		_ = c.Close()
		return nil, syscall.ECONNREFUSED
	}
	d.conns = append(d.conns, c)
	return c, nil
}

func (d *dialer) set(cut bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cut = cut; !cut {
		return
	}
	for _, c := range d.conns {
		_ = c.Close()
	}
}

func TestWhoListensMissesNothingWhenItsConnectionEndsUnlessThatWasCompacted(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	client := raw(t, clientv3.Config{Endpoints: []string{address}})
	var d dialer
	s, other := open(t, func(c *etcd.Config) {
		c.Timeout = patience
		c.Client.DialOptions = []grpc.DialOption{grpc.WithContextDialer(d.dial)}
	}, address), open(t, nil, address)
	heard, ended := listen(t, s)
	require.NoError(t, other.Send(t.Context(), []string{"first"}))
	require.Equal(t, "first", <-heard)

	d.set(true)
	require.NoError(t, other.Send(t.Context(), []string{"meanwhile", "and so"}))
	d.set(false)
	require.NoError(t, other.Send(t.Context(), []string{"last"}))
	for _, want := range []string{"meanwhile", "and so", "last"} {
		require.Equal(t, want, <-heard)
	}

	d.set(true)
	require.NoError(t, other.Send(t.Context(), []string{"lost"}))
	require.NoError(t, other.Send(t.Context(), []string{"there"}))
	_, err := client.Compact(t.Context(), int64(revision(t, client)))
	require.NoError(t, err)
	d.set(false)
	require.ErrorIs(t, ending(t, ended), rpctypes.ErrCompacted)
	assert.Empty(t, heard)
}

func TestWhoListensInAClusterThatWasRestoredIsTold(t *testing.T) {
	t.Parallel()
	m := etcdtest.Member{Name: "m0", Dir: filepath.Join(t.TempDir(), "before"), Peers: etcdtest.FreeURL(t), Clients: etcdtest.FreeURL(t), Heartbeat: quick, Token: "same"}
	_, stop, err := etcdtest.Serve(m)
	require.NoError(t, err)
	s := open(t, func(c *etcd.Config) { c.Timeout = patience }, m.Clients)
	cycle(t, s, "job")
	file := saveSnapshot(t, m.Clients)
	for range 50 {
		cycle(t, s, "job")
	}
	heard, ended := listen(t, s)
	require.NoError(t, s.Send(t.Context(), []string{"before"}))
	require.Equal(t, "before", <-heard)
	stop()
	m.Dir = filepath.Join(t.TempDir(), "after")
	require.NoError(t, snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, Name: m.Name, OutputDataDir: m.Dir, PeerURLs: []string{m.Peers}, InitialCluster: "m0=" + m.Peers, InitialClusterToken: m.Token,
	}))
	_, stop, err = etcdtest.Serve(m)
	require.NoError(t, err)
	defer stop()
	cycle(t, s, "job")
	require.NoError(t, s.Send(t.Context(), []string{"not heard: its revision was before"}))
	require.ErrorContains(t, ending(t, ended), "replaced")
	assert.Empty(t, heard)
	heard, _ = listen(t, s)
	require.NoError(t, s.Send(t.Context(), []string{"again"}))
	assert.Equal(t, "again", <-heard)
}

func TestWhoListensAtAMemberThatIsCutOffIsTold(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 2)
	behind := (c.leader() + 1) % 3
	s := open(t, c.at(0, nil), c.members[behind].Address)
	all := c.store(1, nil)
	_, ended := listen(t, s)
	heal := c.split(behind, 0)
	defer heal()
	eventually(t, func() bool { return all.Send(t.Context(), []string{"of the majority"}) == nil }, "nothing can be sent")
	require.Error(t, ending(t, ended))
}

func TestWhatIsSentIsBounded(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	s := open(t, nil, address)
	require.ErrorIs(t, s.Send(t.Context(), []string{"a", strings.Repeat("x", 1025)}), lease.ErrInvalid)
	client := raw(t, clientv3.Config{Endpoints: []string{address}})
	before := revision(t, client)
	var all []string
	for i := range 1000 {
		all = append(all, fmt.Sprintf("%04d%s", i, strings.Repeat("x", 1000)))
	}
	require.NoError(t, s.Send(t.Context(), all))
	assert.Equal(t, before+16, revision(t, client), "a megabyte is sixteen puts")
	r, err := client.Get(t.Context(), etcd.DefaultPrefix, clientv3.WithPrefix())
	require.NoError(t, err)
	size := 0
	for _, kv := range r.Kvs {
		size += len(kv.Value)
	}
	assert.Less(t, size, 80<<10, "what stays of it")

	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Send(t.Context(), all), lease.ErrClosed)
	require.ErrorIs(t, s.Listen(t.Context(), func() {}, func(string) {}), lease.ErrClosed)
}

func TestTheEndOfAStoreEndsWhoListens(t *testing.T) {
	t.Parallel()
	s := open(t, nil, serve(t, etcdtest.Member{NoFsync: true}))
	_, ended := listen(t, s)
	require.NoError(t, s.Close())
	require.ErrorIs(t, ending(t, ended), lease.ErrClosed)
}

// BenchmarkHandOverBetweenServers passes one lock to and fro between two lock servers on a
// cluster of three processes, with fsync.
func BenchmarkHandOverBetweenServers(b *testing.B) {
	var endpoints []string
	for _, m := range etcdtest.StartCluster(b, b.TempDir(), 3) {
		endpoints = append(endpoints, m.Address)
	}
	servetest.ReportTimes(b, "", servetest.HandOvers(b, newPeers(b, 0, endpoints...)))

	client := raw(b, clientv3.Config{Endpoints: endpoints}) // beside it, a commit
	var times []time.Duration
	for range b.N {
		start := time.Now()
		_, err := client.Put(b.Context(), "x", "x")
		require.NoError(b, err)
		times = append(times, time.Since(start))
	}
	servetest.ReportTimes(b, "put-", times)
}
