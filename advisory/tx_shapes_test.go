package advisory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/txshapes"
)

// acquire takes the lock on agent 1 with what has the methods of a transaction.
func acquire(t *testing.T, tx any) error {
	t.Helper()
	if tx, ok := tx.(advisory.PgxTx); ok {
		return advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, agents.ID(1))
	}
	return advisory.LockSQLTx(t.Context(), tx.(advisory.SQLTx), advisory.TxOptions{}, agents.ID(1))
}

// withShapes runs a test in both modes and with each protocol.
func withShapes(t *testing.T, test func(b txshapes.Base, locker *advisory.Locker)) {
	t.Helper()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		txshapes.InEveryMode(t, pgtest.DSN, func(b txshapes.Base, dsn string) {
			test(b, open(b.T, advisory.Config{DSN: dsn}))
		})
	})
}

func TestWhatIsNotInATransactionTakesNoLock(t *testing.T) {
	t.Parallel()
	withShapes(t, func(b txshapes.Base, locker *advisory.Locker) {
		b.Each(txshapes.None, func(t *testing.T, _ string, tx any) {
			t.Helper()
			require.ErrorIs(t, acquire(t, tx), advisory.ErrNoTransaction)
			require.Zero(t, locks(t, b.Pool, true))
			lock, err := locker.TryAcquire(t.Context(), agents.ID(1))
			require.NoError(t, err)
			require.ErrorIs(t, acquire(t, tx), advisory.ErrNoTransaction, "at once, though somebody holds the lock")
			require.NoError(t, lock.Release())
		})
	})
}

func TestWhatIsInATransactionTakesTheLock(t *testing.T) {
	t.Parallel()
	withShapes(t, func(b txshapes.Base, locker *advisory.Locker) {
		b.Each(txshapes.Begun, func(t *testing.T, _ string, tx any) {
			t.Helper()
			require.NoError(t, acquire(t, tx))
			_, err := locker.TryAcquire(t.Context(), agents.ID(1))
			require.ErrorIs(t, err, advisory.ErrHeld)
			require.NoError(t, txshapes.Exec(t.Context(), tx, "ROLLBACK"))
			require.Zero(t, locks(t, b.Pool, true))
		})
	})
}

func TestAnAbortedTransactionTakesNoLockAndSaysSo(t *testing.T) {
	t.Parallel()
	withShapes(t, func(b txshapes.Base, _ *advisory.Locker) {
		b.Each(txshapes.Begun, func(t *testing.T, _ string, tx any) {
			t.Helper()
			require.Error(t, txshapes.Exec(t.Context(), tx, "SELECT 1/0"))
			err := acquire(t, tx)
			require.NotErrorIs(t, err, advisory.ErrNoTransaction)
			require.ErrorContains(t, err, "25P02")
			require.ErrorContains(t, err, "transaction is aborted")
			require.Zero(t, locks(t, b.Pool, true))
		})
	})
}
