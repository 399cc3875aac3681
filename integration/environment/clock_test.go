//go:build integration

package environment

import (
	"context"
	"errors"
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
