package multiplex_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/multiplex"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A bubble in which somebody waits for ever fails.
func TestACloseLeavesNobodyWaitingForOneWhoIsToDrive(t *testing.T) {
	t.Parallel()
	for round := range 200 {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t, advisorytest.NewServer()}
			s := multiplex.New(w.server.Source("test"), multiplex.Config{Lines: 1, Lanes: 1})
			sessions := make([]*multiplex.Session, 40)
			for i := range sessions {
				sessions[i] = w.take(s, tagOf(i))
			}
			var wg sync.WaitGroup
			for i, v := range sessions {
				wg.Go(func() { _ = v.Unlock(tagOf(i), session.Exclusive) })
			}
			for range round % 7 {
				runtime.Gosched()
			}
			s.Close()
			wg.Wait()
		})
	}
}

// What the end of a session tells one who drives is for nobody: left behind, it would
// wake the next user of the operation's room before its answer.
func TestALossWhileOneGathersLeavesNoSignalBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form of the tests")
	}
	t.Parallel()
	for range 1000 {
		inBubble(t, func(w *world) {
			s, inner := w.open(multiplex.Config{Lines: 1, Lanes: 1})
			together := func(from, n int) (sessions []*multiplex.Session) { // one batch of the first, then one of the others
				release := inner.stall()
				var wg sync.WaitGroup
				for i := from; i < from+n; i++ {
					v := w.session(s, tagOf(i))
					sessions = append(sessions, v)
					wg.Go(func() {
						held, err := v.Try(tagOf(i), session.Exclusive)
						assert.NoError(w, err)
						assert.True(w, held)
					})
					synctest.Wait()
				}
				release()
				wg.Wait()
				return sessions
			}
			together(1, 4)
			time.Sleep(50 * time.Millisecond) // idle, and under watch
			w.server.KillSessions()
			_, _ = w.session(s, tagOf(5)).Try(tagOf(5), session.Exclusive) // while the loss is reported
			time.Sleep(time.Second)

			for i, v := range together(11, 8) {
				assert.NoError(w, v.Unlock(tagOf(11+i), session.Exclusive))
			}
			time.Sleep(time.Second)
			for _, tag := range w.server.Locked() {
				assert.Equal(w, tagOf(5), tag, "nobody holds it")
			}
		})
	}
}

func TestTheLossOfOneLockEndsAWaitForTheNext(t *testing.T) {
	t.Parallel()
	for name, lane := range map[string]bool{"on a lane": true, "parked": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				other, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
				s, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
				foreign := w.take(other, tagOf(2))
				if !lane { // somebody else has the only one
					w.take(other, tagOf(3))
					waiter := w.session(s, tagOf(3))
					go func() {
						for err := error(nil); err == nil; {
							_, err = waiter.Wait(tagOf(3), session.Exclusive, forever)
						}
					}()
					synctest.Wait()
				}
				v := w.take(s, tagOf(1))
				ended := make(chan error, 1)
				go func() {
					for {
						if held, err := v.Wait(tagOf(2), session.Exclusive, forever); held || err != nil {
							ended <- err
							return
						}
					}
				}()
				time.Sleep(time.Second)
				synctest.Wait()
				require.Empty(w, ended)
				start := time.Now()
				require.True(w, w.server.Kill(w.server.Holders(keyOf(1))[0].PID))
				require.ErrorIs(w, <-ended, session.ErrLost)
				assert.LessOrEqual(w, time.Since(start), 20*time.Millisecond)
				require.NoError(w, foreign.UnlockAll())
				require.ErrorIs(w, v.UnlockAll(), session.ErrLost)
				assert.Empty(w, w.server.Holders(keyOf(2)))
			})
		})
	}
}

func TestOneWhoCannotUseTheLaneDoesNotHoldUpThoseBehind(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		other, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		s, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		foreign := w.take(other, tagOf(2))
		one, two, three := w.session(s, tagOf(1)), w.session(s, tagOf(1)), w.session(s, tagOf(1))
		for _, v := range []*multiplex.Session{one, two} { // the carrier and the lane have the key
			held, err := v.Try(tagOf(1), session.Shared)
			require.NoError(w, err)
			require.True(w, held)
		}
		third := w.wait(three, tagOf(1), session.Shared)
		behind := w.session(s, tagOf(2))
		done := w.wait(behind, tagOf(2), session.Exclusive)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Empty(w, third)
		queued := 0
		for range 100 {
			queued += w.server.Waiters(keyOf(2))
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		assert.Greater(w, queued, 50, "in the server's queue")
		require.NoError(w, foreign.UnlockAll())
		<-done
		for _, v := range []*multiplex.Session{one, two, behind} {
			require.NoError(w, v.UnlockAll())
		}
		<-third
		require.NoError(w, three.UnlockAll())
	})
}

func TestAWaitWhoseTimeIsOverDoesNotSpin(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		other, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		s, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		w.take(other, tagOf(1))
		v, start := w.session(s, tagOf(1)), time.Now()
		for range 10 {
			held, err := v.Wait(tagOf(1), session.Exclusive, -time.Second)
			require.NoError(w, err)
			assert.False(w, held)
		}
		assert.GreaterOrEqual(w, time.Since(start), 10*time.Millisecond)
	})
}

func TestAHurryEndsALookThatHasNotBegun(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		s, inner := w.open(multiplex.Config{Lines: 1, Lanes: 1})
		first, second := w.session(s, tagOf(1)), w.session(s, tagOf(1))
		defer inner.stall()()
		go func() { _, _ = first.TryAny([]namespace.Tag{tagOf(1)}) }()
		synctest.Wait()
		ended := make(chan error, 1)
		go func() {
			_, err := second.TryAny([]namespace.Tag{tagOf(2)})
			ended <- err
		}()
		synctest.Wait()
		require.Empty(w, ended)
		second.Hurry()
		require.ErrorIs(w, <-ended, context.Canceled)
	})
}
