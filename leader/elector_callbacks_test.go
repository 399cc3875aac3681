package leader_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
)

func TestCallbacksGetWhatEventsGivesInTheSameOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{Retry: backoff.Fixed{Jitter: -1}, ReconnectGrace: 10 * time.Second}, refuses(), acquires(1), failsToRenew(),
			losesLeadership(), closes(), acquires(2), losesLeadership(), closes(), refuses(), fails(), releases(), closes(), acquires(4), releases(), closes())
		ctx, cancel := context.WithCancel(t.Context())
		stream := s.Events(ctx)
		require.NoError(t, s.Start(t.Context()))
		s.at(20 * time.Second)
		s.finish()
		cancel()
		var events []string
		for v := range stream {
			assert.False(t, v.Time.IsZero())
			switch v.Kind {
			case leader.EventStateChange:
				events = append(events, fmt.Sprintf("%v→%v", v.From, v.To))
			case leader.EventAcquireFailed:
				events = append(events, map[bool]string{true: "refused", false: "attempt failed"}[v.Err == nil])
			case leader.EventAcquired, leader.EventRecovered, leader.EventReleased, leader.EventLost:
				events = append(events, fmt.Sprintf("%v %v", v.Kind, v.Term))
			default:
				events = append(events, v.Kind.String())
			}
		}
		assert.Equal(t, events, s.heard())
		for _, once := range []string{"acquired 1.1", "recovered 1.2", "lost 1.2", "acquired 1.4", "released 1.4", "refused", "attempt failed", "error", "stopped"} {
			assert.Contains(t, events, once)
		}
	})
}

func TestSeveralCallbacksOfAnEventAreCalledInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		say := func(what string) leader.Callbacks {
			return leader.Callbacks{
				OnAcquired: func(leader.Term) { calls = append(calls, "acquired "+what) },
				OnReleased: func(leader.Term) { calls = append(calls, "released "+what) },
				OnError: func(err error) {
					calls = append(calls, fmt.Sprintf("error %s (%t)", what, errors.Is(err, leader.ErrPanic)))
				},
				OnNewLeader: func(h leader.Holder) { calls = append(calls, h.Identity+" leads "+what) },
			}
		}
		hostile := leader.Callbacks{OnAcquired: func(leader.Term) { panic("oops") }}
		base := say("1")
		joined := base.Then(hostile).Then(say("2").Then(say("3"))).Then(leader.Callbacks{})
		_ = base.Then(say("never")) // which changes neither
		e, err := leader.New(leader.Config{Name: "scheduler", Identity: "a", Backend: leadertest.NewElection().Backend(), Callbacks: joined})
		require.NoError(t, err)
		require.NoError(t, e.Start(t.Context()))
		require.NoError(t, e.WaitForLeadership(t.Context()))
		synctest.Wait() // until it has seen itself lead
		require.NoError(t, e.Shutdown(t.Context()))
		assert.Equal(t, []string{
			"acquired 1", "acquired 2", "acquired 3", "error 1 (true)", "error 2 (true)", "error 3 (true)",
			"a leads 1", "a leads 2", "a leads 3", "released 1", "released 2", "released 3",
		}, calls)
	})
}

func TestAPanicInACallbackIsReportedAndHurtsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var book capture.Text
		var reported []error
		s := prepare(t, leader.Config{Logger: book.Logger(), Callbacks: leader.Callbacks{
			OnAcquired: func(leader.Term) { panic("oops") },
			OnError:    func(err error) { reported = append(reported, err); panic("again") },
		}}, acquires(1), releases(), closes())
		require.NoError(t, s.Start(t.Context()))
		synctest.Wait()
		require.Len(t, reported, 1, "the panic of OnError itself is logged only")
		require.ErrorIs(t, reported[0], leader.ErrPanic)
		require.ErrorContains(t, reported[0], "oops")
		assert.True(t, s.IsLeader())
		assert.Contains(t, book.String(), "a callback panicked")
		assert.Contains(t, book.String(), "panic=again")
		assert.Contains(t, book.String(), "TestAPanicInACallback", "it is named")
		s.finish()
		assert.Contains(t, s.heard(), "released 1.1", "the other callbacks go on")
	})
}

func TestASlowCallbackIsNamedAndCostsNoLeadership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var book capture.Text
		s := prepare(t, leader.Config{
			Logger:    book.Logger(),
			Callbacks: leader.Callbacks{OnAcquired: func(leader.Term) { bubble.Sleep(20500 * time.Millisecond) }},
		}, acquires(1), renews(), renews(), renews(), renews(), releases(), closes())
		require.NoError(t, s.Start(t.Context()))
		s.at(999 * time.Millisecond)
		assert.NotContains(t, book.String(), "a callback takes long")
		s.at(time.Second)
		assert.Contains(t, book.String(), "a callback takes long")
		assert.Contains(t, book.String(), "TestASlowCallback", "it is named")
		s.at(20 * time.Second)
		assert.True(t, s.IsLeader(), "renewals go on")
		s.finish()
	})
}

func TestANodeKnowsThatItLeadsNoMoreWhileACallbackHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{Callbacks: leader.Callbacks{OnAcquired: func(leader.Term) { bubble.Sleep(time.Minute) }}},
			acquires(1), hangs(renews()), hangs(renews()), closes(), refuses(), releases(), closes())
		require.NoError(t, s.Start(t.Context()))
		s.at(12*time.Second - 1)
		ctx := s.Context()
		assert.True(t, s.IsLeader())
		s.at(12 * time.Second)
		assert.Equal(t, leader.Leader, s.State(), "the last transition was to Leader")
		assert.False(t, s.IsLeader())
		assert.True(t, s.Term().IsZero())
		assert.ErrorIs(t, context.Cause(ctx), leader.ErrLost)
		s.at(61 * time.Second)
		s.finish()
	})
}

func TestAReaderThatIsFarBehindMissesNoLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		backend := election.Backend()
		polling := struct { // a hundred refused attempts, with two changes of state each, for each loss
			leader.Backend
			driver.LossNotifier
		}{backend, backend}
		s := prepare(t, leader.Config{Backend: polling, Retry: backoff.Fixed{Interval: time.Millisecond}})
		ctx, cancel := context.WithCancel(t.Context())
		stream := s.Events(ctx)
		require.NoError(t, s.Start(t.Context()))
		synctest.Wait()
		const losses = 12
		for range losses {
			election.Steal("somebody", 100*time.Millisecond)
			bubble.Sleep(200 * time.Millisecond)
			assert.True(t, s.IsLeader())
		}
		s.finish()
		time.AfterFunc(time.Second, cancel)
		var kinds []leader.EventKind
		all := 0
		for v := range stream {
			all++
			if v.Kind == leader.EventAcquired || v.Kind == leader.EventLost || v.Kind == leader.EventReleased || v.Kind == leader.EventStopped {
				kinds = append(kinds, v.Kind)
			}
		}
		want := make([]leader.EventKind, 0, 2*losses+3)
		for range losses {
			want = append(want, leader.EventAcquired, leader.EventLost)
		}
		want = append(want, leader.EventAcquired, leader.EventReleased, leader.EventStopped)
		assert.Equal(t, want, kinds)
		assert.LessOrEqual(t, all, 1024, "it does not keep everything")
	})
}

func TestAttemptsAreCountedSinceTheNodeLastLed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{}, refuses(), pends(), pends(), fails(), releases(), closes(), acquires(1), losesLeadership(), closes(), refuses(), releases(), closes())
		ctx, cancel := context.WithCancel(t.Context())
		stream := s.Events(ctx)
		require.NoError(t, s.Start(t.Context()))
		s.at(10 * time.Second)
		s.finish()
		cancel()
		var attempts []int
		for v := range stream {
			if v.Kind == leader.EventAcquireFailed {
				attempts = append(attempts, v.Attempt)
			}
		}
		assert.Equal(t, []int{1, 2, 2, 2, 1}, attempts)
	})
}

// A reader may not have run since, and then the end and the events are there at one time.
func TestAReaderGetsTheEventsFromBeforeTheEndOfItsContext(t *testing.T) {
	t.Parallel()
	for range 50 { // a select would lose them every other time
		synctest.Test(t, func(t *testing.T) {
			e, err := leader.New(leader.Config{Name: "test", Backend: leadertest.NewElection().Backend()})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			var kinds []leader.EventKind
			reading, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for v := range e.Events(ctx) {
					if v.Kind == leader.EventStateChange && v.To == leader.Acquiring {
						<-reading // it is busy with the first
					}
					kinds = append(kinds, v.Kind)
				}
			}()
			synctest.Wait()
			require.NoError(t, e.Start(t.Context()))
			require.NoError(t, e.WaitForLeadership(t.Context()))
			synctest.Wait()
			require.NoError(t, e.Shutdown(t.Context()))
			cancel()
			synctest.Wait()
			close(reading)
			<-done
			assert.Contains(t, kinds, leader.EventAcquired)
			assert.Equal(t, leader.EventStopped, kinds[len(kinds)-1])
		})
	}
}

func TestLivezFailsWhenACallbackHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		backend := leadertest.NewElection().Backend()
		resume := make(chan struct{})
		e, err := leader.New(leader.Config{Name: "scheduler", Backend: backend, Callbacks: leader.Callbacks{OnAcquired: func(leader.Term) { <-resume }}})
		require.NoError(t, err)
		alive := func() bool { code, _ := probe(t, e, "/livez"); return code == http.StatusOK }
		require.NoError(t, e.Start(t.Context()))
		synctest.Wait()
		bubble.Sleep(time.Hour)
		require.True(t, e.IsLeader(), "renewals go on beside a slow callback")

		backend.Cut()
		bubble.Sleep(lease)
		require.False(t, e.IsLeader())
		bubble.Sleep(lease)
		require.False(t, alive(), "nobody has ended the leadership")

		close(resume)
		synctest.Wait()
		require.True(t, alive(), "the loop goes on")
		require.NoError(t, e.Shutdown(t.Context()))
	})
}
