package postgres_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/internal/test/sharetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/lease/shared"
)

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

// newPeers are two servers that know of each other.
func newPeers(tb testing.TB, poll time.Duration) (peers []servetest.Peer, stores []*mutable, heard *servetest.Tap) {
	tb.Helper()
	dsn := pgtest.DSN(tb)
	stores = []*mutable{{Store: newStore(tb, dsn)}, {Store: newStore(tb, dsn)}}
	peers, heard = servetest.NewPeers(tb, poll, newStore(tb, dsn), stores[0], stores[1])
	return peers, stores, heard
}

func TestWaitersOfSeveralServersAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	peers, _, heard := newPeers(t, -1)
	servetest.RequireOneLine(t, peers, heard)
}

func TestWithoutMessagesAWaiterElsewhereLearnsNothingOfARelease(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	servetest.RequireNoLine(t, newStore(t, dsn), newStore(t, dsn))
}

func TestAWaiterAtAServerThatSaysNoMoreHoldsUpNobody(t *testing.T) {
	t.Parallel()
	peers, stores, heard := newPeers(t, 50*time.Millisecond)
	held, err := peers[0].Client.Acquire(t.Context(), servetest.Ask("job", "holder"))
	require.NoError(t, err)
	gone, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = peers[1].Client.AcquireWait(gone, servetest.Ask("job", "gone"), time.Minute) })
	heard.Await("wait", 1)
	stores[1].mute.Store(true)
	leave()
	wg.Wait()
	wg.Go(func() {
		_, err := peers[0].Client.AcquireWait(t.Context(), servetest.Ask("job", "waiter"), patience)
		assert.NoError(t, err)
	})
	heard.Await("wait", 2)
	require.NoError(t, peers[0].Client.Release(t.Context(), held.Claim))
	wg.Wait()
}

func TestAnybodysMessagesDoNoHarm(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	store := newStore(t, dsn)
	p := servetest.NewPeer(t, newStore(t, dsn), 50*time.Millisecond)
	require.NoError(t, store.Send(t.Context(), []string{"", "wait", "hello", "nonsense", "hello x", "wait x 1 job", "wait x 1 ..", "wait y 1 job", "leave x", "free x 1 job", "alive x"}))
	held, err := p.Client.Acquire(t.Context(), servetest.Ask("job", "holder"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := p.Client.AcquireWait(t.Context(), servetest.Ask("job", "waiter"), patience)
		assert.NoError(t, err)
	})
	require.NoError(t, store.Send(t.Context(), []string{"free x 1 job"}))
	require.NoError(t, p.Client.Release(t.Context(), held.Claim))
	wg.Wait()
}

func TestLocksAreSharedInPostgres(t *testing.T) {
	t.Parallel()
	sharetest.Run(t, sharetest.Harness{TTL: 500 * time.Millisecond, New: func(t *testing.T) lease.Store {
		t.Helper()
		return newStore(t, pgtest.DSN(t))
	}})
}

func TestSlotsAreSharedThroughSeveralServersOnOneDatabase(t *testing.T) {
	t.Parallel()
	peers, _, _ := newPeers(t, 100*time.Millisecond)
	crowd := sharetest.Crowd{Clients: 8, Turns: 6, Slots: 3, TTL: 500 * time.Millisecond, Writers: true}
	crowd.Run(t.Context(), t, func(i int) sharetest.Client { return sharetest.Remote{Client: peers[i%2].Client} })
}

func TestWhoWaitsForASlotIsToldOfItsReleaseAtAnotherServer(t *testing.T) {
	t.Parallel()
	peers, _, heard := newPeers(t, -1)
	slot := func(holder string) shared.Request {
		return shared.Request{AcquireRequest: servetest.Ask("job", holder), Slots: 1}
	}
	held, err := peers[0].Client.AcquireShare(t.Context(), slot("holder"), 0)
	require.NoError(t, err)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		share, err := peers[1].Client.AcquireShare(t.Context(), slot("waiter"), patience)
		assert.NoError(t, err)
		assert.Equal(t, 1, share.Slot)
	})
	heard.Await("wait", 1)
	require.NoError(t, peers[0].Client.Release(t.Context(), held.Claim))
	heard.Await("free", 1)
}
