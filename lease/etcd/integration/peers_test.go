package integration_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
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

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
	"github.com/pglatch/pglatch/lease/etcd/integration/etcdtest"
)

// newPeers are two servers that know of each other.
func newPeers(tb testing.TB, poll time.Duration, endpoints ...string) (peers []servetest.Peer, heard *servetest.Tap) {
	tb.Helper()
	heard = servetest.NewTap(tb, open(tb, nil, endpoints...))
	for range 2 {
		peers = append(peers, servetest.NewPeer(tb, open(tb, nil, endpoints...), poll))
	}
	heard.Await("hello", 2)
	heard.Await("alive", 2)
	return peers, heard
}

func TestWaitersOfTwoServersAreWokenInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	peers, heard := newPeers(t, -1, serve(t, etcdtest.Member{NoFsync: true})) // nobody looks by itself
	held, err := peers[0].Client.Acquire(t.Context(), servetest.Ask("job", "holder"))
	require.NoError(t, err)
	const waiters = 8
	var wg sync.WaitGroup
	served := make(chan int, waiters)
	for i := range waiters {
		wg.Go(func() {
			client := peers[(i/2+1)%2].Client // two at one server, then two at the other
			l, err := client.AcquireWait(t.Context(), servetest.Ask("job", strconv.Itoa(i)), patience)
			if assert.NoError(t, err) {
				served <- i
				assert.NoError(t, client.Release(t.Context(), l.Claim))
			}
		})
		heard.Await("wait", i+1)
	}
	require.NoError(t, peers[0].Client.Release(t.Context(), held.Claim))
	wg.Wait()
	close(served)
	var order []int
	for i := range served {
		order = append(order, i)
	}
	assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, order)
}

// A Spy is no lease.Messenger.
func TestWithoutMessagesAWaiterAtAnotherServerLearnsNothingOfARelease(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	asked := make(chan struct{}, 2)
	first := servetest.NewPeer(t, &servetest.Spy{Store: open(t, nil, address)}, -1)
	second := servetest.NewPeer(t, &servetest.Spy{Store: open(t, nil, address), After: func() { asked <- struct{}{} }}, -1)
	held, err := first.Client.Acquire(t.Context(), servetest.Ask("job", "holder"))
	require.NoError(t, err)
	const wait = 2 * time.Second
	waited := make(chan time.Duration)
	go func() {
		began := time.Now()
		_, _ = second.Client.AcquireWait(t.Context(), servetest.Ask("job", "waiter"), wait)
		waited <- time.Since(began)
	}()
	<-asked
	require.NoError(t, first.Client.Release(t.Context(), held.Claim))
	assert.GreaterOrEqual(t, <-waited, wait)
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
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		require.Fail(t, "it goes on to listen")
		return nil
	}
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
	m := etcdtest.Member{Name: "m0", Dir: filepath.Join(t.TempDir(), "before"), Peers: freeURL(t), Clients: freeURL(t), Heartbeat: quick, Token: "same"}
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
// cluster of three processes, with fsync: the time is from when a client asks one to release it
// until the client that waits at the other has it.
func BenchmarkHandOverBetweenServers(b *testing.B) {
	var endpoints []string
	for _, m := range startMembers(b, 3) {
		endpoints = append(endpoints, m.Address)
	}
	peers, heard := newPeers(b, 0, endpoints...)
	held, err := peers[0].Client.Acquire(b.Context(), servetest.Ask("job", "first"))
	require.NoError(b, err)
	var times []time.Duration
	b.ResetTimer()
	for i := range b.N {
		from, to := peers[i%2].Client, peers[(i+1)%2].Client
		got := make(chan lease.Lease)
		go func() {
			l, err := to.AcquireWait(b.Context(), servetest.Ask("job", strconv.Itoa(i)), patience)
			assert.NoError(b, err)
			got <- l
		}()
		heard.Await("wait", i+1)
		start := time.Now()
		require.NoError(b, from.Release(b.Context(), held.Claim))
		held = <-got
		times = append(times, time.Since(start))
	}
	b.StopTimer()
	report(b, "", times)

	client := raw(b, clientv3.Config{Endpoints: endpoints}) // beside it, a commit
	times = nil
	for range b.N {
		start := time.Now()
		_, err := client.Put(b.Context(), "x", "x")
		require.NoError(b, err)
		times = append(times, time.Since(start))
	}
	report(b, "put-", times)
}

func report(b *testing.B, what string, times []time.Duration) {
	b.Helper()
	slices.Sort(times)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(times[(len(times)-1)*p/100].Microseconds())/1000, what+"p"+strconv.Itoa(p)+"-ms")
	}
}
