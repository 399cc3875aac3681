package leader_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/leadertest"
)

func TestStartAndShutdownCanBeRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{}, acquires(1), releases(), closes(), acquires(2), releases(), closes())
		require.NoError(t, s.Shutdown(t.Context()), "before Start")
		require.NoError(t, s.Start(t.Context()))
		require.NoError(t, s.Start(t.Context()))
		synctest.Wait()
		require.NoError(t, s.Start(t.Context()))
		require.NoError(t, s.Shutdown(t.Context()))
		require.NoError(t, s.Shutdown(t.Context()))
		require.NoError(t, s.Start(t.Context()))
		require.NoError(t, s.WaitForLeadership(t.Context()))
		assert.Equal(t, leader.Term{Era: 1, N: 2}, s.Term())
		s.finish()
	})
}

func TestStartWhileStoppingWaitsAndBeginsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{}, acquires(1), slowly(releases(), 2*time.Second), closes(), acquires(2), releases(), closes())
		synctest.Wait()
		go s.Shutdown(context.Background())
		synctest.Wait()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.Start(impatient), context.DeadlineExceeded)
		require.NoError(t, s.Start(t.Context()))
		assert.Equal(t, 2*time.Second, time.Since(s.began))
		require.NoError(t, s.WaitForLeadership(t.Context()))
		s.finish()
	})
}

func TestStartWhileTheElectorGivesUpIsNotForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{
			Retry:     backoff.Fixed{MaxAttempts: 1},
			Callbacks: leader.Callbacks{OnStopped: func(error) { bubble.Sleep(time.Second) }},
		}, refuses(), releases(), closes(), acquires(1), releases(), closes())
		require.NoError(t, s.Start(t.Context()))
		synctest.Wait()
		assert.Equal(t, leader.Stopped, s.State(), "and OnStopped is running")
		require.NoError(t, s.Start(t.Context()))
		require.NoError(t, s.WaitForLeadership(t.Context()))
		s.finish()
	})
}

func TestTheEndOfStartsContextChangesNothingOnceStartHasReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{}, acquires(1), releases(), closes())
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "value"))
		require.NoError(t, s.Start(ctx))
		synctest.Wait()
		lead := s.Context()
		assert.Equal(t, "value", lead.Value(valueKey{}))
		cancel() // as fx does when all have started, and an errgroup when one has returned
		synctest.Wait()
		assert.True(t, s.IsLeader())
		require.NoError(t, lead.Err())
		s.finish()
		assert.ErrorIs(t, context.Cause(lead), leader.ErrReleased)
		require.ErrorIs(t, s.Start(ctx), context.Canceled)
	})
}

type valueKey struct{}

func TestAStrategyWithNoMoreAttemptsGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cause error
		s := prepare(t, leader.Config{
			Retry:     backoff.Fixed{MaxAttempts: 2, Jitter: -1},
			Callbacks: leader.Callbacks{OnStopped: func(err error) { cause = err }},
		}, refuses(), fails(), releases(), closes(), releases(), closes())
		ran := make(chan error, 1)
		go func() { ran <- s.Run(t.Context(), func(context.Context) error { return nil }) }()
		err := s.WaitForLeadership(t.Context())
		require.ErrorIs(t, err, leader.ErrGaveUp)
		require.ErrorIs(t, err, errBroken, "the last error is reported")
		require.ErrorIs(t, <-ran, leader.ErrGaveUp)
		require.ErrorIs(t, cause, leader.ErrGaveUp)
		s.finish()
	})
}

func TestAStrategyWithNoMoreAttemptsEndsAReconnectionToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{ReconnectGrace: time.Minute, Retry: backoff.Fixed{MaxAttempts: 2, Jitter: -1}},
			acquires(1), losesLeadership(), closes(), fails(), releases(), closes(), fails(), releases(), closes(), releases(), closes())
		s.at(8 * time.Second)
		reported := s.heard()
		assert.Equal(t, []string{"reconnecting→stopped", "lost 1.1", "gave up"}, reported[len(reported)-3:])
		s.finish()
	})
}

func TestTheStrategyLearnsWhatItMayGoBy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked []backoff.Retry
		strategy := strategyFunc(func(r backoff.Retry) (time.Duration, bool) {
			asked = append(asked, r)
			return time.Duration(len(asked)) * time.Second, len(asked) < 3
		})
		s := open(t, leader.Config{Retry: strategy}, refuses(), slowly(fails(), time.Second), releases(), closes(), refuses(), releases(), closes())
		s.at(time.Minute)
		require.Len(t, asked, 3)
		assert.Equal(t, backoff.Retry{Attempt: 1}, asked[0])
		assert.ErrorIs(t, asked[1].Err, errBroken)
		assert.ErrorIs(t, asked[1].Err, leader.ErrConnection)
		asked[1].Err = nil
		assert.Equal(t, backoff.Retry{Attempt: 2, Elapsed: 2 * time.Second, Last: time.Second}, asked[1])
		assert.Equal(t, backoff.Retry{Attempt: 3, Elapsed: 4 * time.Second, Last: 2 * time.Second}, asked[2])
		s.finish()
	})
}

func TestTheStrategyCountsAnewAfterTheNodeHasLed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked []backoff.Retry
		strategy := strategyFunc(func(r backoff.Retry) (time.Duration, bool) {
			asked = append(asked, r)
			return 3 * time.Second, true
		})
		s := open(t, leader.Config{Retry: strategy}, refuses(), acquires(1), losesLeadership(), closes(), refuses(), refuses(), releases(), closes())
		s.at(12 * time.Second)
		assert.Equal(t, []backoff.Retry{{Attempt: 1}, {Attempt: 1}, {Attempt: 2, Elapsed: 3 * time.Second, Last: 3 * time.Second}}, asked)
		s.finish()
	})
}

type strategyFunc func(backoff.Retry) (time.Duration, bool)

func (f strategyFunc) NextDelay(r backoff.Retry) (time.Duration, bool) { return f(r) }

func TestWaitForLeadershipTellsWhyThereIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{}, refuses(), releases(), closes())
		early := make(chan error, 1)
		go func() { early <- s.WaitForLeadership(t.Context()) }()
		synctest.Wait()
		require.NoError(t, s.Start(t.Context()))
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("impatient"))
		defer cancel()
		assert.EqualError(t, s.WaitForLeadership(ctx), "impatient")
		s.finish()
		require.ErrorIs(t, <-early, leader.ErrNotLeader, "it was shut down")
		require.ErrorIs(t, s.WaitForLeadership(t.Context()), leader.ErrNotLeader)
	})
}

func TestTheLeadersContextTellsItsTermAndItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{}, acquires(5), releases(), closes())
		assert.ErrorIs(t, context.Cause(s.Context()), leader.ErrNotLeader)
		assert.True(t, leader.TermOfContext(s.Context()).IsZero())
		require.NoError(t, s.Start(t.Context()))
		synctest.Wait()
		ctx := s.Context()
		require.NoError(t, ctx.Err())
		assert.Equal(t, leader.Term{Era: 1, N: 5}, leader.TermOfContext(ctx))
		assert.Equal(t, s.Term(), leader.TermOfContext(ctx))
		s.finish()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		assert.ErrorIs(t, context.Cause(ctx), leader.ErrReleased)
		assert.Equal(t, leader.Term{Era: 1, N: 5}, leader.TermOfContext(ctx), "also after its end")
		assert.True(t, s.Term().IsZero())
		assert.ErrorIs(t, context.Cause(s.Context()), leader.ErrNotLeader)
	})
}

func TestLeaderAsksTheBackend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		s := prepare(t, leader.Config{Backend: election.Backend(), Identity: "node-a"})
		_, ok, err := s.Leader(t.Context())
		require.NoError(t, err)
		assert.False(t, ok)
		require.NoError(t, s.Start(t.Context()))
		synctest.Wait()
		holder, ok, err := s.Leader(t.Context())
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, "node-a", holder.Identity)
		assert.Equal(t, s.Term(), holder.Term)
		s.finish()
		_, _, err = prepare(t, leader.Config{}).Leader(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})
}

func TestAFollowerWaitsOnTheBackendAndPollsIfThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		script := &scripted{t: t, calls: []call{
			refuses(), hangs(waits()), // until the retry strategy wants an attempt
			refuses(), slowly(waits(), time.Second), // leadership may be free
			refuses(), failsToWait(), // a poll, 2 s later
			refuses(), slowly(waits(), time.Second),
			acquires(4), releases(), closes(),
		}}
		s := prepare(t, leader.Config{Backend: waiting{able{script}}})
		s.script = script
		require.NoError(t, s.Start(t.Context()))
		require.NoError(t, s.WaitForLeadership(t.Context()))
		assert.Equal(t, 6*time.Second, time.Since(s.began))
		s.finish()
	})
}

func TestAStopThatComesWhileWaitHoldsLeadershipFreesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		s := prepare(t, leader.Config{Backend: election.Backend()})
		term := election.Steal("somebody", time.Second)
		require.NoError(t, s.Start(t.Context()))
		time.AfterFunc(time.Second, func() { _ = s.Shutdown(context.Background()) }) // as Wait returns, perhaps holding
		s.at(2 * time.Second)
		other := election.Backend()
		ok, err := other.TryAcquire(t.Context(), "other", time.Hour)
		require.NoError(t, err)
		require.True(t, ok)
		assert.LessOrEqual(t, other.Term().N, term.N+2)
		s.finish()
	})
}

func TestRunReturnsWhatWorkReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{}, acquires(1), releases(), closes(), acquires(2), releases(), closes(), acquires(3), releases(), closes())
		err := s.Run(t.Context(), func(ctx context.Context) error {
			assert.Equal(t, uint64(1), leader.TermOfContext(ctx).N)
			return errBroken
		})
		require.ErrorIs(t, err, errBroken)
		assert.Equal(t, leader.Stopped, s.State(), "who starts it stops it")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, s.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			synctest.Wait()
			assert.Equal(t, leader.Releasing, s.State(), "Run has asked for the stop")
			return context.Cause(ctx)
		}))

		require.NoError(t, s.Start(t.Context()))
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			synctest.Wait()
			assert.Equal(t, leader.Leader, s.State(), "who has not started it does not stop it")
			return errBroken
		}), errBroken)
		assert.True(t, s.IsLeader())
		s.finish()
	})
}

func TestTheClockOfWorksContextIsTheLeaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{}, acquires(1), renews(), releases(), closes())
		require.NoError(t, s.Run(t.Context(), func(ctx context.Context) error {
			bubble.Sleep(6 * time.Second)
			assert.NoError(t, ctx.Err())
			go s.Shutdown(context.Background())
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), leader.ErrReleased)
			return ctx.Err()
		}))
		s.finish()
	})
}

func TestManyCallersOfStartAndShutdownGetOneLifeAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{Backend: leadertest.NewElection().Backend()})
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() { assert.NoError(t, s.Start(t.Context())) })
			callers.Go(func() { assert.NoError(t, s.Shutdown(t.Context())) })
		}
		callers.Wait()
		require.NoError(t, s.Shutdown(t.Context()))
		starts, stops := 0, 0
		for _, line := range s.heard() {
			switch line {
			case "stopped→follower":
				starts++
				assert.Equal(t, starts, stops+1)
			case "stopped":
				stops++
			}
		}
		assert.Equal(t, starts, stops)
		s.finish()
	})
}
