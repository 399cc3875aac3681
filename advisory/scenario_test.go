package advisory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/soak"
)

func TestScenario_BlockingLockAcquisition(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		a, b, work := open(t, advisory.Config{DSN: dsn}), open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		_, err := work.Exec(t.Context(), "CREATE TABLE events (id int)")
		require.NoError(t, err)

		err = a.Do(t.Context(), agents.ID(42), func(ctx context.Context) error {
			for i := range 3 { // the lock survives the commits of the application's own transactions
				if _, err := work.Exec(ctx, "INSERT INTO events VALUES ($1)", i); err != nil {
					return err
				}
				_, err := b.TryAcquire(t.Context(), agents.ID(42))
				require.ErrorIs(t, err, advisory.ErrHeld)
			}
			require.Equal(t, 1, locks(t, work, true))
			return nil
		})
		require.NoError(t, err)
		require.Zero(t, locks(t, work, true), "released when Do returned")
	})
}

func TestScenario_LockTimeout(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		a, b, work := open(t, advisory.Config{DSN: dsn, ApplicationName: "holder"}), open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		lock, err := a.Acquire(t.Context(), agents.ID(42))
		require.NoError(t, err)

		var timeout *advisory.TimeoutError
		eventually(t, func() bool { // a busy machine does not always say who, and a ping makes the holder active
			_, err = b.With(advisory.Options{Wait: time.Second}).Acquire(t.Context(), agents.ID(42))
			return errors.As(err, &timeout) && timeout.Holder != nil && timeout.Holder.State == "idle"
		})
		require.ErrorIs(t, err, advisory.ErrTimeout)
		require.ErrorIs(t, err, advisory.ErrHeld)
		require.Equal(t, pidOf(t, a), timeout.Holder.PID)
		require.Equal(t, "holder", timeout.Holder.ApplicationName)
		require.Equal(t, "127.0.0.1", timeout.Holder.ClientAddr)
		require.False(t, timeout.Holder.SessionSince.IsZero())
		require.False(t, timeout.Holder.Local)

		eventually(t, func() bool { return b.Stats().SessionsInUse == 0 }) // the connection is back in the pool
		require.NoError(t, lock.Release())
		require.Zero(t, locks(t, work, true))
	})
}

// The races that produce the phantom in numbers are in internal/pgsession; this
// is the path from a caller's timeout to an empty pg_locks.
func TestScenario_PostgreSQLBug17686(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		a, b, work := open(t, advisory.Config{DSN: dsn}), open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		won, timedOut := 0, 0
		n := soak.Size(t, 30, 100)
		i := 0
		for ; i < n || timedOut == 0 && i < 100*n; i++ { // a busy machine may be late for all of the first
			lock, err := a.Acquire(t.Context(), agents.ID(42))
			require.NoError(t, err)
			released := make(chan error, 1)
			wait := time.Duration(5+i%10) * time.Millisecond
			time.AfterFunc(8*time.Millisecond, func() { released <- lock.Release() })
			late, err := b.With(advisory.Options{Wait: wait}).Acquire(t.Context(), agents.ID(42))
			require.NoError(t, <-released)
			switch {
			case err == nil:
				won++
				require.NoError(t, late.Release())
			case errors.Is(err, advisory.ErrTimeout):
				timedOut++
			default:
				require.ErrorIs(t, err, advisory.ErrUnavailable, "a busy machine makes no connection in a few milliseconds")
			}
			eventually(t, func() bool { return b.Stats().SessionsInUse == 0 })
			require.Zero(t, locks(t, work, true), "nothing stays locked after a timeout")
		}
		require.Positive(t, timedOut)
		t.Logf("%d of %d waits won the race, %d timed out", won, i, timedOut)
	})
}
