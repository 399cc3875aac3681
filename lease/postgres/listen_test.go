package postgres_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/postgres"
)

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
