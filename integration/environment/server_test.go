//go:build integration

package environment

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
)

func TestLockersSurviveARestartOfTheServer(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{})
		for name, restart := range map[string]func(context.Context) error{
			"fast":      func(ctx context.Context) error { return server.Restart(ctx, pgserver.Fast) },
			"immediate": func(ctx context.Context) error { return server.Restart(ctx, pgserver.Immediate) },
			"killed":    func(ctx context.Context) error { return errors.Join(server.Kill(), server.Start(ctx)) },
		} {
			t.Run(name, func(t *testing.T) { surviveRestart(t, server.DSN(""), restart) })
		}
	})
}

func surviveRestart(t *testing.T, dsn string, restart func(context.Context) error) {
	t.Helper()
	config := advisory.Config{DSN: dsn}
	holder, waiter, idle := open(t, config), open(t, config), open(t, config)
	lock := acquire(t, holder, agents.ID(1))
	waiting := wait(t.Context(), waiter, agents.ID(1))
	requireOneWaits(t, dsn)
	require.NoError(t, lock.Context().Err(), "nothing is lost before the restart")

	require.NoError(t, restart(t.Context()))
	requireLost(t, lock)
	o := receive(t, waiting)
	if o.err == nil {
		require.NoError(t, o.lock.Release())
	} else {
		require.True(t, errors.Is(o.err, advisory.ErrUnavailable) || errors.Is(o.err, advisory.ErrTimeout), "%v", o.err)
	}
	t.Logf("the waiter's error: %v", o.err)
	for _, l := range []*advisory.Locker{holder, waiter, idle} {
		requireRecovery(t, l)
	}
	direct := pgtest.Connect(t, dsn)
	requireExclusion(t, open(t, advisory.Config{DSN: dsn, ApplicationName: "holder"}), waiter, direct)
}

func TestWhileTheServerIsDownLocksAreUnavailable(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{})
		locker := open(t, advisory.Config{DSN: server.DSN("")})
		require.NoError(t, server.Stop(t.Context(), pgserver.Fast))
		nothing := func(context.Context) error { return nil }
		require.ErrorIs(t, locker.Do(t.Context(), agents.ID(1), nothing), advisory.ErrUnavailable)
		_, err := advisory.Open(t.Context(), lockmode.Of(t).Config(advisory.Config{DSN: server.DSN("")}))
		require.ErrorIs(t, err, advisory.ErrUnavailable)

		require.NoError(t, server.Start(t.Context()))
		requireRecovery(t, locker)
	})
}

// requireOneWaits leaves no connection behind.
func requireOneWaits(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	requireLocks(t, conn, 1, 1)
}

// requireRecovery takes locks with a Locker that was open before the server was
// up again.
func requireRecovery(t *testing.T, l *advisory.Locker) {
	t.Helper()
	attempts := 0
	await.Until(t, patience, func() bool {
		attempts++
		err := l.Do(t.Context(), agents.ID(2), func(ctx context.Context) error { return ctx.Err() })
		if err != nil {
			t.Logf("attempt %d: %v", attempts, err)
			require.ErrorIs(t, err, advisory.ErrUnavailable)
		}
		return err == nil
	})
}

// startStandby starts a primary and a standby of it.
func startStandby(t *testing.T) (primary, standby *pgserver.Server) {
	t.Helper()
	primary = pgtest.StartServer(t, pgserver.Options{})
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Close()) })
	return primary, standby
}

func TestOpenRefusesAStandbyUntilItIsPromoted(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		_, standby := startStandby(t)
		locker, err := advisory.Open(t.Context(), lockmode.Of(t).Config(advisory.Config{DSN: standby.DSN("")}))
		require.Nil(t, locker)
		require.ErrorIs(t, err, advisory.ErrStandby)
		require.NotErrorIs(t, err, advisory.ErrUnavailable)
		require.ErrorContains(t, err, "lock space of its own")
		require.ErrorContains(t, err, "connect to the primary")

		direct := pgtest.Connect(t, standby.DSN(""))
		var promoted bool
		require.NoError(t, direct.QueryRow(t.Context(), "SELECT pg_promote()").Scan(&promoted))
		require.True(t, promoted)
		requireEverythingWorks(t, standby.DSN(""), direct)
	})
}

func TestAListOfHostsLeadsToThePrimary(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		primary, standby := startStandby(t)
		dsn := fmt.Sprintf("postgres://postgres@%s:%d,%s:%d/postgres?sslmode=disable",
			standby.Host(), standby.Port(), primary.Host(), primary.Port())
		requireEverythingWorks(t, dsn, pgtest.Connect(t, primary.DSN("")))
	})
}

// The control: what Open keeps from happening.
func TestAPrimaryAndItsStandbyGrantOneLockEach(t *testing.T) {
	t.Parallel()
	primary, standby := startStandby(t)
	require.True(t, tryLock(t, pgtest.Connect(t, primary.DSN(""))))
	require.True(t, tryLock(t, pgtest.Connect(t, standby.DSN(""))))
	require.False(t, tryLock(t, pgtest.Connect(t, primary.DSN(""))))
}

// calm is a SessionTTL with pings so far apart that a timer of the server rings between two of them.
const calm = 9 * time.Second

// awaitPing waits until the holder has sent one more ping.
func awaitPing(t *testing.T, conn *pgx.Conn, pid uint32) {
	t.Helper()
	began := func() (at time.Time) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT query_start FROM pg_stat_activity WHERE pid = $1", int64(pid)).Scan(&at))
		return at
	}
	last := began()
	await.Until(t, patience, func() bool { return !began().Equal(last) }, "no ping")
}

func TestAClockThatIsSetForwardEndsLocksAndTheirHoldersKnow(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		clock := service.NewClock(t)
		dsn := pgtest.StartServer(t, pgserver.Options{Env: clock.Env}).DSN("")
		direct := pgtest.Connect(t, dsn)
		holder := open(t, advisory.Config{DSN: dsn, SessionTTL: calm})
		lock := acquire(t, holder, agents.ID(1))
		awaitPing(t, direct, pidOf(t, holder))
		require.NoError(t, lock.Context().Err(), "the control: without a step a ping later")

		ahead := time.Duration(0)
		await.Until(t, patience, func() bool { // a single step can come after the timer has rung
			ahead += time.Hour
			clock.Set(t, ahead)
			return lock.Context().Err() != nil
		}, "the server ends the session")
		var end *pgconn.PgError
		require.True(t, errors.As(context.Cause(lock.Context()), &end), "%v", context.Cause(lock.Context()))
		require.Equal(t, sqlstate.IdleSessionTimeout, end.Code)
		requireLost(t, lock)
		next := acquire(t, open(t, advisory.Config{DSN: dsn}), agents.ID(1))
		requireLocks(t, direct, 1, 0)
		require.NoError(t, next.Release())
		requireRecovery(t, holder)
	})
}

func TestAClockThatIsSetBackCostsNoLockAndWaitsEndInTime(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		clock := service.NewClock(t)
		dsn := pgtest.StartServer(t, pgserver.Options{Env: clock.Env}).DSN("")
		direct := pgtest.Connect(t, dsn)
		holder, waiter := open(t, advisory.Config{DSN: dsn, SessionTTL: calm}), open(t, advisory.Config{DSN: dsn})
		lock := acquire(t, holder, agents.ID(1))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		canceled := wait(ctx, waiter, agents.ID(1))
		requireLocks(t, direct, 1, 1)

		clock.Set(t, -time.Hour) // the lock_timeout of the wait ends in an hour
		cancel()
		require.ErrorIs(t, receive(t, canceled).err, context.Canceled)
		requireLocks(t, direct, 1, 0)
		awaitPing(t, direct, pidOf(t, holder))
		require.NoError(t, lock.Context().Err(), "a ping later the lock is held")

		limited, err := advisory.Open(t.Context(), lockmode.Of(t).Config(advisory.Config{DSN: dsn, Wait: 3 * time.Second}))
		require.NoError(t, err)
		t.Cleanup(limited.Close)
		waiting := wait(t.Context(), limited, agents.ID(1))
		await.Until(t, patience, func() bool { // a machine may be too busy to see it wait
			_, queued, err := pgtest.CountLocks(t.Context(), direct, agents.ID(1))
			require.NoError(t, err)
			return queued == 1 || len(waiting) == 1
		})
		clock.Set(t, -2*time.Hour)
		require.ErrorIs(t, receive(t, waiting).err, advisory.ErrTimeout)
		requireLocks(t, direct, 1, 0)

		next := wait(t.Context(), waiter, agents.ID(1))
		requireLocks(t, direct, 1, 1)
		clock.Set(t, -3*time.Hour)
		require.NoError(t, lock.Release())
		o := receive(t, next)
		require.NoError(t, o.err)
		require.NoError(t, o.lock.Release())
	})
}
