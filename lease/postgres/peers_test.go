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

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/internal/test/sharetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/lease/shared"
)

func TestWaitersAtAnyServerAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	servetest.RequireOneOrder(t, servetest.NewPeers(t, -1, newStore(t, dsn), newStore(t, dsn), newStore(t, dsn)))
}

func TestWithoutMessagesAWaiterElsewhereLearnsNothingOfARelease(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	servetest.RequireNoOrder(t, newStore(t, dsn), newStore(t, dsn))
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

// A server that cannot reach the active one answers by itself. What it changes wakes the waiters at
// the active server, by a message, or else by their polling. The control has neither.
func TestAServerThatIsCutOffFromTheActiveOneAloneWakesItsWaiters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mute  bool
		poll  time.Duration
		wakes bool
	}{
		"by a message": {false, -1, true},
		"by polling":   {true, 50 * time.Millisecond, true},
		"not at all":   {true, -1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			cut := &mutable{Store: newStore(t, dsn)}
			peers := servetest.NewPeers(t, c.poll, newStore(t, dsn), cut)
			active, other := peers[0], peers[1]
			other.Election.Believe("http://" + clitest.Reserve(t)) // nobody listens there
			servetest.AwaitMetric(t, other.Server, "lock_server_forwards", 0)
			servetest.AwaitMessages(t, other, active) // it listens: when that begins, it looks, too
			cut.mute.Store(c.mute)

			held, err := other.Client.Acquire(t.Context(), servetest.Ask("job", "holder"))
			require.NoError(t, err)
			asked := servetest.Metric(t, active.Server, "lock_op_latency_ms", `"acquire"`)
			wait := servetest.Bound
			if !c.wakes {
				wait = 2 * time.Second
			}
			var wg sync.WaitGroup
			took := time.Duration(0)
			wg.Go(func() {
				began := time.Now()
				_, err := active.Client.AcquireWait(t.Context(), servetest.Ask("job", "waiter"), wait)
				assert.Equal(t, c.wakes, err == nil, "%v", err)
				took = time.Since(began)
			})
			await.Until(t, await.Soon, func() bool { return servetest.Metric(t, active.Server, "lock_op_latency_ms", `"acquire"`) > asked })
			require.NoError(t, other.Client.Release(t.Context(), held.Claim))
			wg.Wait()
			assert.Equal(t, c.wakes, took < wait, "%v", took)
		})
	}
}

func TestAnybodysMessagesDoNoHarm(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	store := newStore(t, dsn)
	p := servetest.NewPeer(t, newStore(t, dsn), 50*time.Millisecond)
	held, err := p.Client.Acquire(t.Context(), servetest.Ask("job", "holder"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := p.Client.AcquireWait(t.Context(), servetest.Ask("job", "waiter"), patience)
		assert.NoError(t, err)
	})
	servetest.AwaitWaiters(t, p.Server, 1)
	require.NoError(t, store.Send(t.Context(), []string{"", "job", "nonsense", "..", "job::slot::0001", "::slot", "a b"}))
	require.NoError(t, p.Client.Release(t.Context(), held.Claim))
	wg.Wait()
}

// Without an election, a queue that never ends starves no waiter of another server.
func TestServersWithoutAnElectionTakeTurns(t *testing.T) {
	t.Parallel()
	dsn, poll := pgtest.DSN(t), 200*time.Millisecond
	busy, other := servetest.NewSingle(t, newStore(t, dsn), poll), servetest.NewSingle(t, newStore(t, dsn), poll)
	servetest.Turns(t, busy, other, servetest.Bound)
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
	dsn := pgtest.DSN(t)
	peers := servetest.NewPeers(t, 100*time.Millisecond, newStore(t, dsn), newStore(t, dsn))
	crowd := sharetest.Crowd{Clients: 8, Turns: 6, Slots: 3, TTL: 500 * time.Millisecond, Writers: true}
	crowd.Run(t.Context(), t, func(i int) sharetest.Client { return sharetest.Remote{Client: peers[i%2].Client} })
}

// Nobody is active, and nobody polls.
func TestWhoWaitsForASlotIsToldOfItsReleaseAtAnotherServer(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	peers := []servetest.Peer{servetest.NewPeer(t, newStore(t, dsn), -1), servetest.NewPeer(t, newStore(t, dsn), -1)}
	servetest.AwaitMessages(t, peers[0], peers[1])
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
	servetest.AwaitMetric(t, peers[1].Server, "lock_waiters", 1)
	require.NoError(t, peers[0].Client.Release(t.Context(), held.Claim))
}
