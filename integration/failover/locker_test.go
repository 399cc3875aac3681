//go:build integration

package failover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/namespace"
)

var accounts = namespace.Must(600, "account")

// An address is a name that moves from one server to another, as that of a load balancer does.
type address struct {
	to atomic.Pointer[pgserver.Server]
}

// config is for a Locker of the test's mode that finds its server at the address.
func (a *address) config(t *testing.T) advisory.Config {
	t.Helper()
	cc, err := pgx.ParseConfig("postgres://postgres@127.0.0.1:1/postgres?sslmode=disable")
	require.NoError(t, err)
	cc.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		server := a.to.Load()
		return new(net.Dialer).DialContext(ctx, network, fmt.Sprintf("%s:%d", server.Host(), server.Port()))
	}
	return lockmode.Of(t).Config(advisory.Config{ConnConfig: cc, Wait: patience})
}

func openLocker(t *testing.T, config advisory.Config) *advisory.Locker {
	t.Helper()
	locker, err := advisory.Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	return locker
}

// acquire waits until the lock is granted, through all that passes.
func acquire(t *testing.T, locker *advisory.Locker, key namespace.Key) *advisory.Lock {
	t.Helper()
	var lock *advisory.Lock
	await.Until(t, patience, func() bool {
		var err error
		lock, err = locker.Acquire(t.Context(), key)
		return err == nil
	})
	return lock
}

// held counts the locks of accounts on a server.
func (p *pair) held(server *pgserver.Server) int64 {
	p.t.Helper()
	return one[int64](p, server, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 600 AND granted")
}

func TestALockerGoesOnOnThePromotedServerAndNeverBackToTheOldPrimary(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		p := newPair(t, "")
		config := lockmode.Of(t).Config(advisory.Config{DSN: p.dsn(), MaxConns: 20, Wait: patience})
		locker := openLocker(t, config)
		first := acquire(t, locker, accounts.ID(1))
		p.caughtUp()
		require.NoError(t, p.primary.Kill())
		<-first.Lost()
		require.ErrorIs(t, first.Release(), advisory.ErrLost)
		p.promote()
		acquire(t, locker, accounts.ID(1))
		require.EqualValues(t, 1, p.held(p.standby), "a legitimate promotion goes on")

		require.NoError(t, p.primary.Start(t.Context()))
		for i := range int64(8) { // more than are on one connection
			_, err := locker.Acquire(t.Context(), accounts.ID(10+i))
			require.NoError(t, err)
		}
		assert.EqualValues(t, 9, p.held(p.standby))
		assert.Zero(t, p.held(p.primary), "one Locker holds locks on one server")

		require.NoError(t, p.standby.Stop(t.Context(), pgserver.Immediate))
		var other *session.OtherServerError
		await.Until(t, patience, func() bool {
			_, err := locker.TryAcquire(t.Context(), accounts.ID(1))
			return errors.As(err, &other)
		})
		require.ErrorIs(t, other, advisory.ErrOtherServer)
		require.ErrorIs(t, other, advisory.ErrUnavailable, "the promoted server can come back")
		assert.ErrorContains(t, other, "timeline 1")
		assert.EqualValues(t, 2, other.KnownTimeline)
		require.NoError(t, p.standby.Start(t.Context()))
		acquire(t, locker, accounts.ID(1))
		assert.EqualValues(t, 1, p.held(p.standby), "after a crash its timeline is the same")
	})
}

// The old primary lives, and so do the sessions on it.
func TestWhatIsGrantedOnThePromotedServerComesAfterTheEndOfAllThatWasHeldBefore(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		p, at := newPair(t, ""), &address{}
		at.to.Store(p.primary)
		locker := openLocker(t, at.config(t))
		var before []*advisory.Lock
		for i := range int64(2) { // a connection of the multiplexed mode is full then
			before = append(before, acquire(t, locker, accounts.ID(i)))
		}
		p.caughtUp()
		p.promote()
		at.to.Store(p.standby)
		_, err := locker.Acquire(t.Context(), accounts.ID(2))
		require.NoError(t, err)
		for _, lock := range before {
			var other *session.OtherServerError
			require.ErrorIs(t, context.Cause(lock.Context()), advisory.ErrLost, "granted beside a lock on the old primary")
			require.ErrorAs(t, lock.Release(), &other)
			assert.ErrorContains(t, other, "timeline 2")
			assert.NotErrorIs(t, other, advisory.ErrUnavailable, "something was done under the lock")
		}
		assert.EqualValues(t, 1, p.held(p.standby))
		p.eventually(p.primary, "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory' AND classid = 600")
	})
}

func TestALockerOfAMovedDatabaseSaysThatItMustBeOpenedAgain(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		at := &address{}
		from, to := pgtest.StartServer(t, pgserver.Options{}), pgtest.StartServer(t, pgserver.Options{OwnSystem: true})
		at.to.Store(from)
		locker := openLocker(t, at.config(t))
		lock := acquire(t, locker, accounts.ID(1))
		at.to.Store(to)
		require.NoError(t, from.Stop(t.Context(), pgserver.Fast))
		<-lock.Lost()
		_, err := locker.Acquire(t.Context(), accounts.ID(1))
		var other *session.OtherServerError
		require.ErrorAs(t, err, &other)
		require.NotEqual(t, other.KnownSystem, other.System)
		require.ErrorContains(t, err, "open another")
		locker.Close()
		acquire(t, openLocker(t, at.config(t)), accounts.ID(1))
	})
}
