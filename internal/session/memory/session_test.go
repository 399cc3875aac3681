package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/session/memory"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/namespace"
)

const forever = time.Hour

// connect returns a session of a process of its own.
func connect(t *testing.T, server *memory.Server) session.Session {
	t.Helper()
	source := server.Source("test")
	s, err := source.Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() {
		s.Close(false)
		source.Close()
	})
	return s
}

func try(t *testing.T, s session.Session, mode session.Mode) bool {
	t.Helper()
	op := &session.Op{Tag: key.Tag(), Mode: mode}
	require.NoError(t, do(s, op))
	return op.Held
}

func do(s session.Session, ops ...*session.Op) error { return s.Do(ops, forever) }

func unlock(s session.Session, mode session.Mode) error {
	return do(s, &session.Op{Tag: key.Tag(), Mode: mode, Unlock: true})
}

func waitFor(s session.Session, mode session.Mode, limit time.Duration) (bool, error) {
	op := &session.Op{Tag: key.Tag(), Mode: mode, Wait: limit}
	err := do(s, op)
	return op.Held, err
}

// wait waits in the background, step by step, until the lock is held.
func wait(t *testing.T, s session.Session, mode session.Mode, then func()) {
	t.Helper()
	go func() {
		for {
			ok, err := waitFor(s, mode, forever)
			if !assert.NoError(t, err) {
				return
			}
			if ok {
				then()
				return
			}
		}
	}()
	synctest.Wait()
}

var key = namespace.Must(1, "agent").ID(1)

func TestModesExcludeEachOtherAsInPostgreSQL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		held, wanted session.Mode
		granted      bool
	}{
		{"exclusive beside exclusive", session.Exclusive, session.Exclusive, false},
		{"shared beside exclusive", session.Exclusive, session.Shared, false},
		{"exclusive beside shared", session.Shared, session.Exclusive, false},
		{"shared beside shared", session.Shared, session.Shared, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := memory.NewServer()
				a, b := connect(t, server), connect(t, server)
				require.True(t, try(t, a, tt.held))
				assert.Equal(t, tt.granted, try(t, b, tt.wanted))
				require.NoError(t, unlock(a, tt.held))
				assert.True(t, tt.granted || try(t, b, tt.wanted), "free after the unlock")
			})
		})
	}
}

func TestASessionCountsItsOwnLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		a, b := connect(t, server), connect(t, server)
		require.True(t, try(t, a, session.Exclusive))
		require.True(t, try(t, a, session.Exclusive))
		require.NoError(t, unlock(a, session.Exclusive))
		assert.False(t, try(t, b, session.Exclusive))
		require.NoError(t, unlock(a, session.Exclusive))
		assert.True(t, try(t, b, session.Exclusive))
		assert.ErrorContains(t, unlock(a, session.Exclusive), "BUG")
		assert.Len(t, server.Holders(key), 1)
	})
}

func TestWaitersAreServedInOrderOfArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		holder := connect(t, server)
		require.True(t, try(t, holder, session.Exclusive))
		served := make(chan int, 3)
		for i := range 3 {
			s := connect(t, server)
			wait(t, s, session.Exclusive, func() {
				served <- i
				assert.NoError(t, unlock(s, session.Exclusive))
			})
		}
		assert.Equal(t, 3, server.Waiters(key))
		require.NoError(t, unlock(holder, session.Exclusive))
		for i := range 3 {
			assert.Equal(t, i, <-served)
		}
		synctest.Wait()
		assert.Empty(t, server.Locked())
	})
}

func TestAReaderDoesNotOvertakeAWriterThatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		reader, writer, late := connect(t, server), connect(t, server), connect(t, server)
		require.True(t, try(t, reader, session.Shared))
		wrote := make(chan struct{})
		wait(t, writer, session.Exclusive, func() { close(wrote) })
		assert.False(t, try(t, late, session.Shared), "a try respects the queue")
		read := make(chan struct{})
		wait(t, late, session.Shared, func() { close(read) })
		assert.True(t, try(t, reader, session.Shared), "a session re-enters its own lock past the queue")

		require.NoError(t, unlock(reader, session.Shared))
		require.NoError(t, unlock(reader, session.Shared))
		<-wrote
		synctest.Wait()
		assert.Equal(t, 1, server.Waiters(key))
		require.NoError(t, unlock(writer, session.Exclusive))
		<-read
	})
}

func TestAWriterThatLeavesLetsTheReadersBehindItThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		reader, writer, late := connect(t, server), connect(t, server), connect(t, server)
		require.True(t, try(t, reader, session.Shared))
		gaveUp := make(chan struct{})
		go func() {
			ok, err := waitFor(writer, session.Exclusive, forever)
			assert.NoError(t, err)
			assert.False(t, ok)
			close(gaveUp)
		}()
		synctest.Wait()
		read := make(chan struct{})
		wait(t, late, session.Shared, func() { close(read) })
		writer.Interrupt()
		<-gaveUp
		<-read
		assert.Len(t, server.Holders(key), 2)
	})
}

func TestAWaitEndsWithItsStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		a, b := connect(t, server), connect(t, server)
		require.True(t, try(t, a, session.Exclusive))
		for limit, want := range map[time.Duration]time.Duration{
			forever: 900 * time.Millisecond, 10 * time.Millisecond: 10 * time.Millisecond, -forever: time.Millisecond,
		} {
			start := time.Now()
			ok, err := waitFor(b, session.Exclusive, limit)
			require.NoError(t, err)
			assert.False(t, ok)
			assert.Equal(t, want, time.Since(start))
		}
		assert.Zero(t, server.Waiters(key))
		b.Interrupt() // the next wait
		start := time.Now()
		ok, err := waitFor(b, session.Exclusive, forever)
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Zero(t, time.Since(start))
	})
}

func TestATryOfAnyTakesTheFirstFreeTag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		tags := []namespace.Tag{namespace.SingleRaw(1).Tag(), namespace.SingleRaw(2).Tag()}
		for _, want := range []int{0, 1, -1} {
			op := &session.Op{Any: tags}
			require.NoError(t, do(connect(t, server), op))
			assert.Equal(t, want, op.Index)
			assert.Equal(t, want >= 0, op.Held)
		}
		assert.Equal(t, tags, server.Locked())
	})
}

func TestAKilledSessionLosesItsLocksAndTellsItsWatchOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		a, b := connect(t, server), connect(t, server)
		require.True(t, try(t, a, session.Exclusive))
		reports := make(chan error, 9)
		a.Watch(func(err error) { reports <- err })
		granted := make(chan struct{})
		wait(t, b, session.Exclusive, func() { close(granted) })

		assert.True(t, server.Kill(a.Look(time.Now(), false).PID))
		assert.False(t, server.Kill(a.Look(time.Now(), false).PID), "it is gone")
		assert.Equal(t, session.Lost, a.Look(time.Now(), true).State)
		<-granted
		synctest.Wait()
		require.Len(t, reports, 1)
		require.ErrorIs(t, <-reports, session.ErrLost)
		require.ErrorIs(t, unlock(a, session.Exclusive), session.ErrLost)
		require.ErrorIs(t, do(a, &session.Op{Tag: key.Tag()}), session.ErrLost)
		require.ErrorIs(t, do(a, &session.Op{Tag: key.Tag(), Holder: &session.Holder{}}), session.ErrLost)
	})
}

func TestAWaitEndsWithItsSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		a, b := connect(t, server), connect(t, server)
		require.True(t, try(t, a, session.Exclusive))
		failed := make(chan error)
		go func() {
			_, err := waitFor(b, session.Exclusive, forever)
			failed <- err
		}()
		synctest.Wait()
		b.Kill(errors.New("a reason"))
		err := <-failed
		require.ErrorIs(t, err, session.ErrLost)
		require.ErrorContains(t, err, "a reason")
		assert.Zero(t, server.Waiters(key))
	})
}

func TestNoReportFollowsAnUnlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		a := connect(t, server)
		require.True(t, try(t, a, session.Exclusive))
		a.Watch(func(error) { assert.Fail(t, "reported") })
		require.NoError(t, unlock(a, session.Exclusive))
		server.KillSessions()
		synctest.Wait()
	})
}

func TestReleaseReusesASessionOnlyWithoutLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		source := server.Source("test")
		a, err := source.Acquire(t.Context())
		require.NoError(t, err)
		a.Close(true)
		a.Kill(errors.New("too late")) // it is not a's any more
		b, err := source.Acquire(t.Context())
		require.NoError(t, err)
		assert.Equal(t, a.Look(time.Now(), false).PID, b.Look(time.Now(), false).PID)
		require.True(t, try(t, b, session.Exclusive))
		assert.Equal(t, 1, source.Stats().Open)
		b.Close(true)
		assert.Empty(t, server.Locked())
		assert.Zero(t, source.Stats().Open)
		source.Close()
		_, err = source.Acquire(t.Context())
		require.ErrorIs(t, err, session.ErrClosed)
	})
}

func TestAnIdleSessionThatDiedShowsItAtItsFirstUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		source := server.Source("test")
		s, err := source.Acquire(t.Context())
		require.NoError(t, err)
		s.Close(true)
		server.KillSessions()
		s, err = source.Acquire(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, do(s, &session.Op{Tag: key.Tag()}), session.ErrLost)
		s.Close(true)
		assert.Zero(t, source.Stats().Open)
		source.Close()
	})
}

func TestAnUnavailableServerMakesNoSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		source := server.Source("test")
		server.SetUnavailable(errors.New("connection refused"))
		_, err := source.Acquire(t.Context())
		require.ErrorIs(t, err, session.ErrUnavailable)
		require.ErrorContains(t, err, "connection refused")

		server.SetUnavailable(nil)
		canceled, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		_, err = source.Acquire(canceled)
		require.EqualError(t, err, "enough")
		s, err := source.Acquire(t.Context())
		require.NoError(t, err)
		s.Close(true)
		source.Close()
	})
}

func TestCloseWaitsForSessionsInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		source := server.Source("test")
		s, err := source.Acquire(t.Context())
		require.NoError(t, err)
		closed := make(chan struct{})
		go func() {
			source.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			require.Fail(t, "Close did not wait")
		default:
		}
		s.Close(true)
		<-closed
	})
}

func TestHoldersTellsWhoHoldsAKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		assert.Empty(t, server.Holders(key))
		start := time.Now()
		a, b := connect(t, server), connect(t, server)
		require.True(t, try(t, b, session.Shared))
		require.True(t, try(t, a, session.Shared))
		holders := server.Holders(key)
		require.Len(t, holders, 2)
		assert.Equal(t, b.Look(time.Now(), false).PID, holders[0].PID, "in the order of the grants")
		assert.Equal(t, "test", holders[1].ApplicationName)
		assert.Equal(t, "idle", holders[1].State)
		assert.Equal(t, session.Shared, holders[1].Mode)
		assert.Equal(t, start, holders[1].BackendStart)

		op := &session.Op{Tag: key.Tag(), Holder: &session.Holder{}}
		require.NoError(t, do(connect(t, server), op))
		require.True(t, op.Held)
		seen := *op.Holder
		assert.Equal(t, a.Look(time.Now(), false).PID, seen.PID, "the oldest session")
	})
}

func TestMain(m *testing.M) { leak.Main(m) }
