package advisory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestALockTellsItsSession(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l, work := open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		lock, err := l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		var pid uint32
		require.NoError(t, work.QueryRow(t.Context(), `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = 1 AND objid = 1
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&pid))
		require.Equal(t, pid, lock.PID())
		require.NoError(t, lock.Release())
		require.Equal(t, pid, lock.PID(), "also afterwards, for logs")
	})
}
