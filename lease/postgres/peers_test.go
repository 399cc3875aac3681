package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/postgres"
)

// A peer is one lock server of several on a database.
type peer struct {
	client *leasehttp.Client
	store  *mutable
}

// A mutable store can be kept from sending messages.
type mutable struct {
	*postgres.Store
	mute atomic.Bool
}

func (m *mutable) Send(ctx context.Context, messages []string) error {
	if m.mute.Load() {
		return errors.New("mute")
	}
	return m.Store.Send(ctx, messages)
}

func newPeer(tb testing.TB, store lease.Store, poll time.Duration) peer {
	tb.Helper()
	server, h := servetest.Serve(tb, leaseserver.Config{Store: store, PollInterval: poll})
	ctx, cancel := context.WithCancel(tb.Context())
	var wg sync.WaitGroup
	wg.Go(func() { server.Monitor(ctx) })
	tb.Cleanup(wg.Wait)
	tb.Cleanup(cancel)
	p := peer{client: servetest.Client(tb, h, leasehttp.ClientConfig{})}
	p.store, _ = store.(*mutable)
	return p
}

// A tap hears what the servers of a database say.
type tap struct {
	tb  testing.TB
	mu  sync.Mutex
	all []string
}

func newTap(tb testing.TB, s *postgres.Store) *tap {
	tb.Helper()
	x := &tap{tb: tb}
	ctx, cancel := context.WithCancel(tb.Context())
	ready := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := s.Listen(ctx, func() { close(ready) }, func(message string) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.all = append(x.all, message)
		})
		assert.ErrorIs(tb, err, context.Canceled)
	})
	tb.Cleanup(wg.Wait)
	tb.Cleanup(cancel)
	<-ready
	return x
}

// await waits until n different messages of a kind were sent.
func (x *tap) await(kind string, n int) {
	x.tb.Helper()
	require.Eventually(x.tb, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		found := map[string]bool{}
		for _, m := range x.all {
			if strings.HasPrefix(m, kind+" ") {
				found[m] = true
			}
		}
		return len(found) >= n
	}, patience, time.Millisecond, "%s", kind)
}

// newPeers are two servers that know of each other.
func newPeers(tb testing.TB, poll time.Duration) (peers []peer, heard *tap) {
	tb.Helper()
	dsn := pgtest.DSN(tb)
	heard = newTap(tb, newStore(tb, dsn))
	for range 2 {
		peers = append(peers, newPeer(tb, &mutable{Store: newStore(tb, dsn)}, poll))
	}
	heard.await("hello", 2)
	heard.await("alive", 2)
	return peers, heard
}

func TestWaitersOfSeveralServersAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	peers, heard := newPeers(t, -1) // nobody looks by itself
	held, err := peers[0].client.Acquire(t.Context(), servetest.Ask("job", "holder"))
	require.NoError(t, err)
	const waiters = 8
	var wg sync.WaitGroup
	served := make(chan int, waiters)
	for i := range waiters {
		wg.Go(func() {
			client := peers[(i/2+1)%2].client // two at one server, then two at the other
			l, err := client.AcquireWait(t.Context(), servetest.Ask("job", fmt.Sprint(i)), patience)
			if assert.NoError(t, err) {
				served <- i
				assert.NoError(t, client.Release(t.Context(), l.Claim))
			}
		})
		heard.await("wait", i+1)
	}
	require.NoError(t, peers[0].client.Release(t.Context(), held.Claim))
	wg.Wait()
	close(served)
	var order []int
	for i := range served {
		order = append(order, i)
	}
	assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, order)
}

// A Spy is no lease.Messenger.
func TestWithoutMessagesAWaiterElsewhereLearnsNothingOfARelease(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	asked := make(chan struct{}, 2)
	first := newPeer(t, &servetest.Spy{Store: newStore(t, dsn)}, -1)
	second := newPeer(t, &servetest.Spy{Store: newStore(t, dsn), After: func() { asked <- struct{}{} }}, -1)
	held, err := first.client.Acquire(t.Context(), servetest.Ask("job", "holder"))
	require.NoError(t, err)
	const wait = 2 * time.Second
	waited := make(chan time.Duration)
	go func() {
		began := time.Now()
		_, _ = second.client.AcquireWait(t.Context(), servetest.Ask("job", "waiter"), wait)
		waited <- time.Since(began)
	}()
	<-asked
	require.NoError(t, first.client.Release(t.Context(), held.Claim))
	assert.GreaterOrEqual(t, <-waited, wait)
}

func TestAWaiterAtAServerThatSaysNoMoreHoldsUpNobody(t *testing.T) {
	t.Parallel()
	peers, heard := newPeers(t, 50*time.Millisecond)
	held, err := peers[0].client.Acquire(t.Context(), servetest.Ask("job", "holder"))
	require.NoError(t, err)
	gone, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = peers[1].client.AcquireWait(gone, servetest.Ask("job", "gone"), time.Minute) })
	heard.await("wait", 1)
	peers[1].store.mute.Store(true)
	leave()
	wg.Wait()
	wg.Go(func() {
		_, err := peers[0].client.AcquireWait(t.Context(), servetest.Ask("job", "waiter"), patience)
		assert.NoError(t, err)
	})
	heard.await("wait", 2)
	require.NoError(t, peers[0].client.Release(t.Context(), held.Claim))
	wg.Wait()
}

func TestAnybodysMessagesDoNoHarm(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	store := newStore(t, dsn)
	p := newPeer(t, newStore(t, dsn), 50*time.Millisecond)
	require.NoError(t, store.Send(t.Context(), []string{"", "wait", "hello", "nonsense", "hello x", "wait x 1 job", "wait x 1 ..", "wait y 1 job", "leave x", "free x 1 job", "alive x"}))
	held, err := p.client.Acquire(t.Context(), servetest.Ask("job", "holder"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := p.client.AcquireWait(t.Context(), servetest.Ask("job", "waiter"), patience)
		assert.NoError(t, err)
	})
	require.NoError(t, store.Send(t.Context(), []string{"free x 1 job"}))
	require.NoError(t, p.client.Release(t.Context(), held.Claim))
	wg.Wait()
}
