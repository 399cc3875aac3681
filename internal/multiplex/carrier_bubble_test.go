package multiplex_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/multiplex"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

const forever = time.Hour

func TestASessionNeverReentersALockOfAnotherAcquisition(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		// The control: the server itself lets a session in again.
		bare, err := w.server.Source("bare").Acquire(w.Context(), tagOf(9), time.Time{})
		require.NoError(w, err)
		defer bare.Close()
		for range 2 {
			held, err := bare.Try(tagOf(9), session.Exclusive)
			require.NoError(w, err)
			require.True(w, held, "a session re-enters its own lock")
		}

		s, inner := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		first, second := w.take(s, tagOf(1)), w.session(s, tagOf(1))
		held, err := second.Try(tagOf(1), session.Exclusive)
		require.NoError(w, err)
		assert.False(w, held, "it is held")
		require.NoError(w, first.Unlock(tagOf(1), session.Exclusive))

		release := inner.stall()
		done := make(chan bool)
		go func() {
			held, err := first.Try(tagOf(1), session.Exclusive)
			assert.NoError(w, err)
			done <- held
		}()
		synctest.Wait()
		held, err = second.Try(tagOf(1), session.Exclusive)
		require.NoError(w, err)
		assert.False(w, held, "it is in flight")
		release()
		assert.True(w, <-done)
		require.NoError(w, first.Unlock(tagOf(1), session.Exclusive))
		held, err = second.Try(tagOf(1), session.Exclusive)
		require.NoError(w, err)
		assert.True(w, held)
		require.NoError(w, second.UnlockAll())
	})
}

func TestOperationsThatArriveTogetherGoOutTogether(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		s, inner := w.open(multiplex.Config{Lines: 1, Lanes: 1, MaxLocks: 5000})
		first := w.take(s, tagOf(0))
		release := inner.stall()
		const n = 2500
		var wg sync.WaitGroup
		for i := range n {
			v := w.session(s, tagOf(i+1))
			wg.Go(func() {
				held, err := v.Try(tagOf(i+1), session.Exclusive)
				assert.NoError(w, err)
				assert.True(w, held)
			})
		}
		synctest.Wait()
		before := s.Stats()
		release()
		wg.Wait()
		after := s.Stats()
		assert.Equal(w, int64(n), after.Operations-before.Operations+1, "one was in flight")
		assert.LessOrEqual(w, after.Batches-before.Batches, int64(4), "1024 at most in each")
		assert.Equal(w, n+1, after.Locks)
		assert.Len(w, w.server.Locked(), n+1)
		require.NoError(w, first.UnlockAll())
	})
}

func TestKeysAreSpreadSoThatALossCostsItsShare(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		s, _ := w.open(multiplex.Config{Lines: 4, Lanes: 1, MaxLocks: 1000})
		const n = 1000
		lost := make(map[uint32]int)
		held := make(map[uint32]int)
		var mu sync.Mutex
		var some *multiplex.Session
		for i := range n {
			v := w.take(s, tagOf(i))
			pid := v.PID()
			held[pid]++
			some = v
			v.Watch(func(err error) {
				assert.ErrorIs(w, err, session.ErrLost)
				mu.Lock()
				defer mu.Unlock()
				lost[pid]++
			})
		}
		require.Len(w, held, 4)
		for _, share := range held {
			assert.InDelta(w, n/4, share, n/10)
		}
		time.Sleep(time.Second) // they are under watch
		pid := some.PID()
		require.True(w, w.server.Kill(pid))
		synctest.Wait()
		assert.Equal(w, map[uint32]int{pid: held[pid]}, lost, "all on that session, each once, and nobody else")
		assert.Equal(w, session.Lost, some.State(time.Now()))
		require.ErrorIs(w, some.UnlockAll(), session.ErrLost)
		assert.Equal(w, n-held[pid], s.Stats().Locks)
	})
}

func TestALockBeyondTheCapIsRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		s, _ := w.open(multiplex.Config{Lines: 2, Lanes: 1, MaxLocks: 3})
		var sessions []*multiplex.Session
		for i := range 3 {
			sessions = append(sessions, w.take(s, tagOf(i)))
		}
		v := w.session(s, tagOf(3))
		for range 2 {
			held, err := v.Try(tagOf(3), session.Exclusive)
			require.ErrorIs(w, err, session.ErrLockTableFull)
			assert.False(w, held)
			_, err = v.Wait(tagOf(3), session.Exclusive, forever)
			require.ErrorIs(w, err, session.ErrLockTableFull)
		}
		_, err := v.TryAny([]namespace.Tag{tagOf(4), tagOf(5)})
		require.ErrorIs(w, err, session.ErrLockTableFull)
		assert.Equal(w, 3, s.Stats().Locks)
		require.NoError(w, sessions[0].UnlockAll())
		_, err = v.Try(tagOf(3), session.Exclusive)
		require.NoError(w, err)
		assert.Equal(w, 3, s.Stats().Locks)
	})
}

func TestACallerWhoLeavesASilentServerLeavesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		s, inner := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		w.take(s, tagOf(0))
		release := inner.stall()
		ctx, cancel := context.WithCancel(w.Context())
		results := make(chan error, 20)
		start := time.Now()
		for i := range cap(results) { // the first drives, those after it wait for the next batch
			v := w.session(s, tagOf(i+1))
			go func() {
				_, err := v.TryUntil(ctx, time.Time{}, tagOf(i+1), session.Exclusive)
				results <- err
			}()
			synctest.Wait()
		}
		cancel()
		for range cap(results) {
			require.ErrorIs(w, <-results, session.ErrLost)
		}
		assert.LessOrEqual(w, time.Since(start), time.Second)
		again := w.session(s, tagOf(1))
		done := make(chan bool)
		go func() {
			held, err := again.Try(tagOf(1), session.Exclusive)
			assert.NoError(w, err)
			done <- held
		}()
		assert.False(w, <-done, "what is in flight is not tried again")
		release()
		synctest.Wait()
		assert.Len(w, w.server.Locked(), 1, "the late grant was undone")
		held, err := again.Try(tagOf(1), session.Exclusive)
		require.NoError(w, err)
		assert.True(w, held)
		assert.Equal(w, 2, s.Stats().Locks)
	})
}

func TestADeadlineEndsATryOfASilentServer(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		s, inner := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		v := w.session(s, tagOf(1))
		defer inner.stall()()
		start := time.Now()
		_, err := v.TryUntil(w.Context(), start.Add(time.Second), tagOf(1), session.Exclusive)
		require.ErrorIs(w, err, session.ErrLost)
		assert.Equal(w, time.Second, time.Since(start))
	})
}

func TestTheLossOfASessionInABatchIsToldToAllInItAndBehindIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		s, inner := w.open(multiplex.Config{Lines: 1, Lanes: 1, MaxLocks: 500})
		holder := w.take(s, tagOf(0))
		told := make(chan error, 1)
		holder.Watch(func(err error) { told <- err })
		release := inner.stall()
		assert.Equal(w, session.Held, holder.State(time.Now()))
		const n = 200
		results := make(chan error, n)
		for i := range n {
			v := w.session(s, tagOf(i+1))
			go func() {
				_, err := v.Try(tagOf(i+1), session.Exclusive)
				results <- err
			}()
		}
		time.Sleep(time.Second)
		assert.Equal(w, session.Doubtful, holder.State(time.Now()), "an answer is overdue")
		w.server.KillSessions()
		release()
		failed := 0
		for range n {
			if err := <-results; err != nil {
				require.ErrorIs(w, err, session.ErrLost)
				failed++
			}
		}
		assert.GreaterOrEqual(w, failed, n-1, "the first was answered before")
		require.ErrorIs(w, <-told, session.ErrLost)
		synctest.Wait()
		assert.Zero(w, s.Stats().Locks)
		assert.Empty(w, w.server.Locked())
		w.take(s, tagOf(1)) // on a new session
	})
}

func TestAServerThatIsAwayIsNotStormed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		s, inner := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		refused := errors.New("connection refused")
		inner.fail = refused
		start := time.Now()
		for time.Since(start) < time.Minute {
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					_, err := s.Acquire(w.Context(), tagOf(1), time.Time{})
					assert.ErrorIs(w, err, refused)
				})
			}
			wg.Wait()
		}
		assert.Less(w, len(inner.dials), 130, "about one each second")
		assert.Greater(w, len(inner.dials), 55)
		inner.fail = nil
		w.take(s, tagOf(1))
	})
}

func TestAnIdleCarrierIsGivenBackAndTakenAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		s, inner := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		for i := range 3 {
			v := w.take(s, tagOf(1))
			require.NoError(w, v.UnlockAll())
			time.Sleep(time.Second)
			assert.Len(w, inner.dials, i+1)
			held, err := v.Try(tagOf(2), session.Exclusive) // a session that was given back meanwhile
			require.NoError(w, err)
			assert.True(w, held)
			require.NoError(w, v.UnlockAll())
			time.Sleep(time.Second)
			inner.dials = inner.dials[:i+1]
		}
	})
}
