package mutex_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/mutex"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

var agents = namespace.Must(1, "agent")

// processes are the Lockers of two processes, on one server in memory.
type processes struct {
	*testing.T
	server      *advisorytest.Server
	here, there *advisory.Locker
}

// inBubble runs a test in a bubble.
func inBubble(t *testing.T, test func(p processes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := advisorytest.NewServer()
		here, err := server.Open(advisory.Config{})
		require.NoError(t, err)
		defer here.Close()
		there, err := server.Open(advisory.Config{})
		require.NoError(t, err)
		defer there.Close()
		test(processes{t, server, here, there})
	})
}

func TestAMutexExcludesGoroutinesThatShareItAndOtherProcesses(t *testing.T) {
	t.Parallel()
	inBubble(t, func(p processes) {
		t := p.T
		shared := mutex.New(p.here, agents.ID(42))
		inside, most := 0, 0
		var all sync.WaitGroup
		for i := range 20 {
			m := shared
			if i%4 == 0 {
				m = mutex.New(p.there, agents.ID(42))
			}
			all.Go(func() {
				assert.NoError(t, m.LockContext(t.Context()))
				inside++
				most = max(most, inside)
				bubble.Sleep(10 * time.Millisecond)
				inside--
				ok, err := m.UnlockContext(t.Context())
				assert.True(t, ok)
				assert.NoError(t, err)
			})
		}
		all.Wait()
		assert.Equal(t, 1, most)
	})
}

func TestAMutexThatIsTakenSaysByWhom(t *testing.T) {
	t.Parallel()
	inBubble(t, func(p processes) {
		t := p.T
		m, other := mutex.New(p.here, agents.ID(42)), mutex.New(p.there.With(advisory.Options{Wait: time.Second}), agents.ID(42))
		assert.Equal(t, "agent/42", m.Name())
		require.NoError(t, m.TryLockContext(t.Context()))
		err := other.TryLockContext(t.Context())
		require.ErrorIs(t, err, mutex.ErrTaken)
		require.ErrorAs(t, err, new(*advisory.HeldError))
		err = other.LockContext(t.Context())
		require.ErrorIs(t, err, mutex.ErrFailed)
		require.ErrorIs(t, err, mutex.ErrTaken)
		_, err = other.UnlockContext(t.Context())
		require.ErrorIs(t, err, mutex.ErrNotLocked)
		_, err = other.ExtendContext(t.Context())
		require.ErrorIs(t, err, mutex.ErrNotLocked)
	})
}

func TestAMutexIsHeldForAsLongAsTheWorkTakesAndUnlockedAlsoWhenItsContextHasEnded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(p processes) {
		t := p.T
		m := mutex.New(p.here, agents.ID(42))
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, m.LockContext(ctx))
		bubble.Sleep(24 * time.Hour)
		ok, err := m.ExtendContext(ctx)
		require.NoError(t, err)
		assert.True(t, ok)
		cancel()
		ok, err = m.UnlockContext(ctx)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.ErrorIs(t, context.Cause(m.Context()), mutex.ErrNotLocked)
		assert.Empty(t, p.server.Locked())
	})
}

func TestALossIsToldByTheContextByExtendAndByUnlock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(p processes) {
		t := p.T
		m, next := mutex.New(p.here, agents.ID(42)), mutex.New(p.there, agents.ID(42))
		require.NoError(t, m.LockContext(t.Context()))
		work := m.Context()
		p.server.KillSessions()
		<-work.Done()
		require.NoError(t, next.LockContext(t.Context()))

		ok, err := m.ExtendContext(t.Context())
		assert.False(t, ok)
		require.ErrorIs(t, err, mutex.ErrExpired)
		ok, err = m.UnlockContext(t.Context())
		assert.False(t, ok)
		require.ErrorAs(t, err, new(*advisory.LostError))
		ok, err = next.ExtendContext(t.Context())
		require.NoError(t, err)
		assert.True(t, ok, "the lock of the successor is untouched")
		_, err = next.UnlockContext(t.Context())
		require.NoError(t, err)
	})
}

func TestALostMutexIsLockedAgainOnlyWhenItWasUnlocked(t *testing.T) {
	t.Parallel()
	inBubble(t, func(p processes) {
		t, m := p.T, mutex.New(p.here, agents.ID(42))
		require.NoError(t, m.LockContext(t.Context()))
		work := m.Context()
		p.server.KillSessions()
		<-work.Done()
		require.ErrorIs(t, m.LockContext(t.Context()), mutex.ErrExpired, "the first holder would unlock it")
		require.ErrorIs(t, m.TryLockContext(t.Context()), mutex.ErrExpired)
		assert.Empty(t, p.server.Locked())
		_, err := m.UnlockContext(t.Context())
		require.ErrorIs(t, err, mutex.ErrExpired)
		require.NoError(t, m.LockContext(t.Context()))
		_, err = m.UnlockContext(t.Context())
		require.NoError(t, err)
	})
}

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
