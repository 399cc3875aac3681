package mutex_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/mutex"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestAMutexWhoseSessionIsTerminatedIsLostAndFreeForOthers(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	admin := pgtest.Connect(t, dsn)
	var all []*mutex.Mutex
	for range 2 { // as two processes
		locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn})
		require.NoError(t, err)
		defer locker.Close()
		all = append(all, mutex.New(locker, agents.ID(42)))
	}
	require.NoError(t, all[0].LockContext(t.Context()))
	require.ErrorIs(t, all[1].TryLockContext(t.Context()), mutex.ErrTaken)
	work := all[0].Context()
	_, err := admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1 AND objid = 42 AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	require.NoError(t, err)

	<-work.Done()
	require.NoError(t, all[1].LockContext(t.Context()))
	ok, err := all[0].UnlockContext(t.Context())
	assert.False(t, ok)
	require.ErrorIs(t, err, mutex.ErrExpired)
	ok, err = all[1].UnlockContext(t.Context())
	require.NoError(t, err)
	assert.True(t, ok)
}

func TestMain(m *testing.M) { pgtest.Main(m) }
