package multiplex_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/multiplex"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// wait waits in slices in the background, as a Locker does.
func (w *world) wait(v *multiplex.Session, tag namespace.Tag, mode session.Mode) <-chan time.Time {
	done := make(chan time.Time, 1)
	go func() {
		for {
			held, err := v.Wait(tag, mode, forever)
			if !assert.NoError(w, err) {
				return
			}
			if held {
				done <- time.Now()
				return
			}
		}
	}()
	synctest.Wait()
	return done
}

func TestAWonWaitLivesOnItsLaneUntilItIsReleased(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		other, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		s, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		holder, v := w.take(other, tagOf(1)), w.session(s, tagOf(1))
		done := w.wait(v, tagOf(1), session.Exclusive)
		assert.Equal(w, 1, w.server.Waiters(keyOf(1)))
		mine := w.take(s, tagOf(2)) // the carrier goes on
		start := time.Now()
		require.NoError(w, holder.UnlockAll())
		assert.Equal(w, start, <-done, "at once")
		assert.NotEqual(w, mine.PID(), v.PID())
		assert.Equal(w, 2, s.Stats().InUse)
		told := make(chan error, 1)
		v.Watch(func(err error) { told <- err })
		w.server.Kill(v.PID())
		require.ErrorIs(w, <-told, session.ErrLost)
		require.ErrorIs(w, v.UnlockAll(), session.ErrLost)
		require.NoError(w, mine.UnlockAll())
	})
}

func TestKeysBeyondTheLanesTakeTurnsAndAreTriedTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form of the tests")
	}
	t.Parallel()
	inBubble(t, func(w *world) {
		const n, lanes = 40, 2
		other, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		s, _ := w.open(multiplex.Config{Lines: 1, Lanes: lanes})
		var holders []*multiplex.Session
		var waits []<-chan time.Time
		var sessions []*multiplex.Session
		for i := range n {
			holders = append(holders, w.take(other, tagOf(i)))
			v := w.session(s, tagOf(i))
			sessions = append(sessions, v)
			waits = append(waits, w.wait(v, tagOf(i), session.Exclusive))
		}
		assert.Equal(w, lanes, s.Stats().InUse, "the bound")
		queued := make(map[int]bool)
		for range 4 * n { // in slices
			for i := range n {
				if w.server.Waiters(keyOf(i)) > 0 {
					queued[i] = true
				}
			}
			time.Sleep(300 * time.Millisecond)
			synctest.Wait()
		}
		assert.Len(w, queued, n, "everybody had a turn in the server's queue")
		before := s.Stats()
		time.Sleep(time.Second)
		synctest.Wait()
		after := s.Stats()
		assert.InDelta(w, 20*(n-lanes), after.Operations-before.Operations, n, "each is tried twenty times a second")

		start := time.Now()
		for _, h := range holders {
			require.NoError(w, h.UnlockAll())
		}
		for _, done := range waits {
			assert.LessOrEqual(w, (<-done).Sub(start), 100*time.Millisecond)
		}
		for _, v := range sessions {
			require.NoError(w, v.UnlockAll())
		}
		assert.Zero(w, s.Stats().Locks)
		synctest.Wait()
		assert.Zero(w, s.Stats().InUse)
	})
}

func TestLocksThatAreHeldForEverDoNotUseTheLanesUp(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		other, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		s, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		holders := []*multiplex.Session{w.take(other, tagOf(1)), w.take(other, tagOf(2))}
		one, two := w.session(s, tagOf(1)), w.session(s, tagOf(2))
		first := w.wait(one, tagOf(1), session.Exclusive)
		second := w.wait(two, tagOf(2), session.Exclusive)
		require.NoError(w, holders[0].UnlockAll())
		<-first // it holds the only lane now
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(w, 1, w.server.Waiters(keyOf(2)), "which waits for others too")

		start := time.Now()
		require.NoError(w, one.Unlock(tagOf(1), session.Exclusive))
		assert.Equal(w, start, time.Now(), "an unlock interrupts that")
		assert.Empty(w, w.server.Holders(keyOf(1)))
		require.NoError(w, holders[1].UnlockAll())
		<-second
		require.NoError(w, two.UnlockAll())
	})
}

func TestAnInterruptEndsAWaitWhereverItIs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		other, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		s, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		for i := range 2 { // on the lane, and parked
			w.take(other, tagOf(i))
			v := w.session(s, tagOf(i))
			ended := make(chan time.Time, 1)
			go func() {
				held, err := v.Wait(tagOf(i), session.Exclusive, forever)
				for i == 0 && err == nil { // in slices, until the end
					held, err = v.Wait(tagOf(i), session.Exclusive, forever)
				}
				assert.True(w, i == 0 || err == nil)
				assert.False(w, held)
				ended <- time.Now()
			}()
			synctest.Wait()
			if i == 0 {
				continue
			}
			start := time.Now()
			v.Interrupt()
			assert.Equal(w, start, <-ended)
			v.Interrupt() // before the next one
			held, err := v.Wait(tagOf(i), session.Exclusive, forever)
			require.NoError(w, err)
			assert.False(w, held)
			assert.Equal(w, start, time.Now())
		}
	})
}

func TestASecondReaderDoesNotOvertakeAWriter(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		other, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		s, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		one, two, three := w.session(s, tagOf(1)), w.session(s, tagOf(1)), w.session(s, tagOf(1))
		for _, v := range []*multiplex.Session{one, two} {
			held, err := v.Try(tagOf(1), session.Shared)
			require.NoError(w, err)
			require.True(w, held)
		}
		assert.Len(w, w.server.Holders(keyOf(1)), 2, "on two sessions")
		_, err := three.Try(tagOf(1), session.Shared)
		require.ErrorIs(w, err, session.ErrNoSession)
		require.NoError(w, two.UnlockAll())

		writer := w.session(other, tagOf(1))
		done := w.wait(writer, tagOf(1), session.Exclusive)
		held, err := three.Try(tagOf(1), session.Shared)
		require.NoError(w, err)
		assert.False(w, held, "the writer is first")
		require.NoError(w, one.UnlockAll())
		<-done
		require.NoError(w, writer.UnlockAll())
	})
}

func TestAWaitNeverUsesTheLaneThatHoldsItsKey(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		other, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		s, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		foreign, one, two := w.take(other, tagOf(1)), w.session(s, tagOf(1)), w.session(s, tagOf(1))
		first := w.wait(one, tagOf(1), session.Exclusive)
		require.NoError(w, foreign.UnlockAll())
		<-first
		second := w.wait(two, tagOf(1), session.Exclusive)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(w, second, "the session would let itself in")
		start := time.Now()
		require.NoError(w, one.UnlockAll())
		assert.LessOrEqual(w, (<-second).Sub(start), 100*time.Millisecond)
		require.NoError(w, two.UnlockAll())
		assert.Empty(w, w.server.Locked())
		assert.Zero(w, s.Stats().Locks)
	})
}
