package pgsession

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pgtest"
	"github.com/pglatch/pglatch/internal/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/session"
)

func TestAFullLockTableCostsASessionNoneOfItsLocks(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{
		"max_connections": "20", "max_locks_per_transaction": "10", "autovacuum": "off",
	}})
	dsn := server.DSN("")
	s := take(t, newPool(t, dsn, nil), pairKey)
	_, err := connect(t, dsn).try("SELECT pg_advisory_lock(2, i) FROM generate_series(1, 100000) AS i")
	require.Equal(t, codeOutOfMemory, sqlState(err))

	ok, err := s.Try(singleKey, session.Exclusive)
	require.ErrorIs(t, err, session.ErrLockTableFull)
	assert.False(t, ok)
	assert.Equal(t, session.Held, s.State(time.Now()))
	require.NoError(t, s.Unlock(pairKey, session.Exclusive))
}

func TestTheErrorOfABatchWhoseSessionIsLostMeanwhileIsTheLoss(t *testing.T) {
	t.Parallel()
	s := acquire(t, newPool(t, pgtest.DSN(t), batches))
	trip(t, s, 2, dividing)
	ops := []*session.Op{try(pairOf(1), session.Exclusive), try(pairOf(2), session.Exclusive)}
	s.batch = &batch{ops: ops}
	require.NoError(t, s.send(ops))
	for done := false; !done; {
		var err error
		done, err = s.step()
		require.NoError(t, err)
	}
	failed := s.judge()
	require.Error(t, failed)
	require.NotErrorIs(t, failed, session.ErrLost)
	s.Kill(assert.AnError)
	require.ErrorIs(t, s.resolveBatch(failed), session.ErrLost)
}

func TestASessionThatIsKilledWhileItIsReleasedIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	p := newPool(t, pgtest.DSN(t), nil)
	s := acquire(t, p)
	s.mu.Lock()
	released := make(chan struct{})
	go func() { s.Release(); close(released) }()
	require.Never(t, func() bool { return closedWithin(0, released) }, 50*time.Millisecond, 10*time.Millisecond)
	_ = s.lose(assert.AnError) // what Kill does under mu
	s.mu.Unlock()
	<-released
	assert.Zero(t, p.pool.Stat().IdleConns())
	ok, err := acquire(t, p).Try(pairKey, session.Exclusive)
	require.NoError(t, err)
	assert.True(t, ok)
}
