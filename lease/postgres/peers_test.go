package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/internal/test/sharetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leaseserver"
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

// An eared store listens through another one.
type eared struct {
	*postgres.Store
	ears *postgres.Store
}

func (e eared) Listen(ctx context.Context, ready func(), receive func(string)) error {
	return e.ears.Listen(ctx, ready, receive)
}

const listeners = `FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN "pglatch_lease"%'`

// Nobody looks by itself: without messages, those who wait would wait until the end.
func TestServersHearEachOtherAgainAfterALostConnection(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T) (dsn, ears string, lose func()){
		"their sessions are terminated": func(t *testing.T) (dsn, ears string, lose func()) {
			t.Helper()
			dsn = pgtest.DSN(t)
			return dsn, dsn, func() {
				require.Equal(t, int64(2), one[int64](newJudge(t, dsn), "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) "+listeners))
			}
		},
		"the server restarts": func(t *testing.T) (dsn, ears string, lose func()) {
			t.Helper()
			server := pgtest.StartServer(t, pgserver.Options{})
			return server.DSN(""), server.DSN(""), func() { require.NoError(t, server.Restart(t.Context(), pgserver.Immediate)) }
		},
		"the network falls silent": func(t *testing.T) (dsn, ears string, lose func()) {
			t.Helper()
			dsn = pgtest.DSN(t)
			config, err := pgx.ParseConfig(dsn)
			require.NoError(t, err)
			proxy, err := faultproxy.New(t.Context(), net.JoinHostPort(config.Host, fmt.Sprint(config.Port)))
			require.NoError(t, err)
			t.Cleanup(proxy.Close)
			ears, err = proxy.URL(dsn)
			require.NoError(t, err)
			u, err := url.Parse(ears) // and another way to the server, which stays open
			require.NoError(t, err)
			u.Host += "," + net.JoinHostPort(config.Host, fmt.Sprint(config.Port))
			q := u.Query()
			q.Set("connect_timeout", "2")
			u.RawQuery = q.Encode()
			return dsn, u.String(), func() { proxy.Set(faultproxy.Hold) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, ears, lose := lose(t)
			store, earStore := newStore(t, dsn), open(t, ears, nil)
			for _, s := range []*postgres.Store{store, earStore} {
				require.NoError(t, s.Health(t.Context()), "it knows the schema, so that LISTEN is its listener's last statement")
			}
			const wait = 20 * servetest.Bound // longer than a busy machine needs for all that comes before the release
			a := servetest.NewPeerOf(t, leaseserver.Config{Store: store, PollInterval: -1, MaxWait: wait})
			b := servetest.NewPeerOf(t, leaseserver.Config{Store: eared{newStore(t, dsn), earStore}, PollInterval: -1, MaxWait: wait})
			servetest.AwaitMessages(t, a, b)
			servetest.AwaitMessages(t, b, a)
			held, err := a.Client.Acquire(t.Context(), servetest.Ask("job", "holder"))
			require.NoError(t, err)
			asked := func(p servetest.Peer) float64 {
				return servetest.Metric(t, p.Server, "lock_op_latency_ms", `"acquire"`)
			}
			beforeA, beforeB := asked(a), asked(b)
			var wg sync.WaitGroup
			for i, p := range []servetest.Peer{b, a, b} {
				wg.Go(func() {
					l, err := p.Client.AcquireWait(t.Context(), servetest.Ask("job", fmt.Sprint(i)), wait)
					if assert.NoError(t, err) {
						assert.NoError(t, p.Client.Release(t.Context(), l.Claim))
					}
				})
			}
			servetest.AwaitWaiters(t, a.Server, 1)
			servetest.AwaitWaiters(t, b.Server, 2)
			await.Until(t, patience, func() bool { return asked(a) > beforeA && asked(b) > beforeB },
				"the first waiter of each server has the store's answer")
			lose()
			servetest.AwaitMessages(t, a, b)
			servetest.AwaitMessages(t, b, a)
			require.NoError(t, a.Client.Release(t.Context(), held.Claim))
			wg.Wait()
		})
	}
}

func TestOnAStandbyThereAreNoMessagesAndItIsSaid(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	newStore(t, server.DSN(""))
	standby, err := server.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, standby.Close()) })
	store := open(t, standby.DSN(""), nil)
	err = store.Listen(t.Context(), func() { t.Error("it listens") }, func(string) {})
	require.ErrorContains(t, err, "standby")
	err = store.Send(t.Context(), []string{"hello"})
	require.ErrorIs(t, err, lease.ErrBusy)
	require.ErrorContains(t, err, "recovery")
}

func TestMessagesNeedTheRightsThatLeasesNeedAndNoMore(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	newStore(t, dsn)
	j := newJudge(t, dsn)
	role := "nobody_" + one[string](newJudge(t, dsn), "SELECT current_database()")
	j.exec("CREATE ROLE " + role + " LOGIN")
	t.Cleanup(func() { j.exec("DROP OWNED BY " + role); j.exec("DROP ROLE " + role) })
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.User = url.User(role)
	store := open(t, u.String(), nil)
	for _, err := range []error{
		store.Listen(t.Context(), func() { t.Error("it listens") }, func(string) {}),
		store.Send(t.Context(), []string{"hello"}),
	} {
		require.ErrorIs(t, err, lease.ErrNotReady)
		require.ErrorContains(t, err, "GRANT USAGE")
	}
	j.exec("GRANT USAGE ON SCHEMA pglatch_lease TO " + role)
	j.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pglatch_lease TO " + role)
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		assert.ErrorIs(t, store.Listen(ctx, func() { close(ready) }, func(string) {}), context.Canceled)
	})
	<-ready
	cancel()
	wg.Wait()
	require.NoError(t, store.Send(t.Context(), []string{"hello"}))
}

// Before PostgreSQL 17 the queue has 8 GB.
func TestAFullQueueOfNotificationsKeepsNobodyFromALock(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	j := newJudge(t, server.DSN(""))
	if one[int](j, "SELECT current_setting('server_version_num')::int") < 170000 {
		t.Skip("the queue cannot be made small")
	}
	j.exec("ALTER SYSTEM SET max_notify_queue_pages = 64")
	require.NoError(t, server.Restart(t.Context(), pgserver.Fast))
	a := servetest.NewPeer(t, newStore(t, server.DSN("")), 50*time.Millisecond)
	b := servetest.NewPeer(t, newStore(t, server.DSN("")), -1)
	servetest.AwaitMessages(t, a, b)
	lazy, err := pgx.Connect(t.Context(), server.DSN(""))
	require.NoError(t, err)
	_, err = lazy.Exec(t.Context(), "LISTEN elsewhere")
	require.NoError(t, err)
	_, err = lazy.Exec(t.Context(), "BEGIN")
	require.NoError(t, err)
	for _, size := range []int{7900, 10, 0} { // what is left is filled with smaller ones
		await.Until(t, patience, func() bool {
			_, err := j.pool.Exec(t.Context(), "SELECT pg_notify('x', repeat('x', $1))", size)
			return sqlstate.Of(err) == sqlstate.ProgramLimitExceeded // a connection from before the restart fails, too
		}, "control: the queue is full")
	}
	store := newStore(t, server.DSN(""))
	require.Error(t, store.Send(t.Context(), []string{"hello"}))
	held, err := b.Client.Acquire(t.Context(), servetest.Ask("job", "holder"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		l, err := a.Client.AcquireWait(t.Context(), servetest.Ask("job", "waiter"), servetest.Bound)
		if assert.NoError(t, err) {
			assert.NoError(t, a.Client.Release(t.Context(), l.Claim))
		}
	})
	servetest.AwaitWaiters(t, a.Server, 1)
	require.NoError(t, b.Client.Release(t.Context(), held.Claim))
	wg.Wait()
	require.NoError(t, lazy.Close(t.Context()))
	servetest.AwaitMessages(t, a, b)
}
