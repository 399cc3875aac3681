package leader_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
)

// An eager backend answers everything at once.
type eager struct {
	attempts int // used by the lifecycle goroutine only
	pending  bool
}

// TryAcquire gives up on an Elector that spins, since no bubble's clock moves then.
func (b *eager) TryAcquire(ctx context.Context, _ string, _ time.Duration) (bool, error) {
	if b.attempts++; b.attempts > 10_000 {
		<-ctx.Done()
	}
	if b.pending {
		return false, driver.ErrPending
	}
	return false, nil
}
func (b *eager) Renew(context.Context, string, time.Duration) error { return leader.ErrLost }
func (b *eager) Release(context.Context, string) error              { return nil }

// An eagerWaiter always says that leadership is free.
type eagerWaiter struct{ *eager }

func (eagerWaiter) Wait(context.Context) error { return nil }

// always retries after the same time.
type always time.Duration

func (a always) NextDelay(backoff.Retry) (time.Duration, bool) {
	return time.Duration(a), true
}

func TestNothingMakesAnElectorSpin(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]struct {
		pending bool
		waits   bool
		retry   backoff.Strategy
	}{
		"a backend whose Wait returns at once, and whose attempts are refused": {waits: true},
		"a backend that is always half done":                                   {pending: true},
		"a strategy without a delay":                                           {retry: always(0)},
		"a strategy with a negative delay":                                     {retry: always(-time.Hour)},
		"a strategy that takes nanoseconds for seconds":                        {retry: backoff.Fixed{Interval: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &eager{pending: config.pending}
				var backend leader.Backend = b
				if config.waits {
					backend = eagerWaiter{b}
				}
				e, err := leader.New(leader.Config{Name: "scheduler", Backend: backend, Retry: config.retry})
				require.NoError(t, err)
				require.NoError(t, e.Start(t.Context()))
				bubble.Sleep(10 * time.Second)
				require.NoError(t, e.Shutdown(t.Context()))
				assert.LessOrEqual(t, b.attempts, 220, "20 a second, and a few at once")
				assert.Greater(t, b.attempts, 100)
			})
		})
	}
}

func TestANodeThatGivesUpWhileItSettlesIsNoCleanEndOfItsPredecessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		first := election.Backend()
		ok, err := first.TryAcquire(t.Context(), "first", time.Minute)
		require.NoError(t, err)
		require.True(t, ok)
		election.Kill() // first's work goes on until it hears of this

		settling := func(identity string) *leader.Elector {
			e, err := leader.New(leader.Config{Name: "scheduler", Backend: election.Backend(), Identity: identity, SettleDelay: time.Second})
			require.NoError(t, err)
			require.NoError(t, e.Start(t.Context()))
			return e
		}
		second := settling("second")
		bubble.Sleep(500 * time.Millisecond)
		require.False(t, second.IsLeader())
		require.NoError(t, second.Shutdown(t.Context()))

		third := settling("third")
		synctest.Wait()
		assert.False(t, third.IsLeader(), "first may still be at work")
		bubble.Sleep(time.Second)
		synctest.Wait()
		assert.True(t, third.IsLeader())
		require.NoError(t, third.Shutdown(t.Context()))
	})
}

func TestAStepDownThatMustHurryReleasesABackendThatCannotBeClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		script := &scripted{t: t, calls: []call{acquires(1), slowly(releases(), time.Second), releases()}}
		s := open(t, leader.Config{Backend: script})
		free := make(chan struct{})
		go func() { _ = s.Run(t.Context(), stubborn(free)) }()
		synctest.Wait()
		_ = s.heard()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.StepDown(ctx), context.DeadlineExceeded)
		assert.Equal(t, 2*time.Second, time.Since(s.began), "the release has succeeded")
		assert.Equal(t, []string{"leader→releasing", "releasing→follower", "released none", "error"}, s.heard())
		require.NoError(t, s.Shutdown(t.Context()))
		assert.Empty(t, script.calls)
		close(free)
	})
}

func TestAStepDownInACallbackEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s *scene
		var err error
		s = prepare(t, leader.Config{Callbacks: leader.Callbacks{OnAcquired: func(leader.Term) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err = s.StepDown(ctx)
		}}}, acquires(1), renews(), failsToRelease(), closes(), releases(), closes())
		require.NoError(t, s.Start(t.Context()))
		s.at(8 * time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, leader.Follower, s.State(), "the lifecycle goes on, and heeds the request")
		s.finish()
	})
}

func TestALossWhileWorkEndsLeavesItTheSameTimeAsAnyOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{MaxRenewFailures: 1, LossDrain: time.Second}, acquires(1), failsToRenew(), closes(), releases(), closes())
		go func() {
			_ = s.Run(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				bubble.Sleep(1500 * time.Millisecond)
				s.note("work has ended")
				return nil
			})
		}()
		s.at(4 * time.Second)
		_ = s.heard()
		require.NoError(t, s.StepDown(t.Context())) // the renewal fails at 5 s
		assert.Equal(t, []string{"leader→releasing", "work has ended", "releasing→follower", "lost 1.1", "error"}, s.heard())
		s.finish()
	})
}

func TestRenewalsThatFailWhileWorkEndsAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{}, acquires(1), failsToRenew(), failsToRenew(), renews(), releases(), releases(), closes())
		go func() {
			_ = s.Run(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				bubble.Sleep(7 * time.Second)
				s.note("work has ended")
				return nil
			})
		}()
		s.at(time.Second)
		_ = s.heard()
		require.NoError(t, s.StepDown(t.Context()))
		assert.Equal(t, []string{"leader→releasing", "error", "error", "work has ended", "releasing→follower", "released 1.1"}, s.heard())
		s.finish()
	})
}

func TestACallbackThatEndsItsGoroutineDoesNotEndTheElector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reported []error
		s := prepare(t, leader.Config{Callbacks: leader.Callbacks{
			OnAcquired: func(leader.Term) { runtime.Goexit() }, // as FailNow does
			OnError:    func(err error) { reported = append(reported, err) },
		}}, acquires(1), releases(), closes())
		require.NoError(t, s.Start(t.Context()))
		synctest.Wait()
		require.Len(t, reported, 1)
		require.ErrorIs(t, reported[0], leader.ErrPanic)
		s.finish()
	})
}

func TestLeadershipThatEndedBeforeItWasGivenUpIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{}, acquires(1), closes(), releases(), closes())
		synctest.Wait()
		_ = s.heard()
		ctx := s.Context()
		s.Distrust() // as if the process had been stopped, and woke by a signal to stop
		require.NoError(t, s.StepDown(t.Context()))
		require.ErrorIs(t, context.Cause(ctx), leader.ErrLost)
		assert.Equal(t, []string{"leader→releasing", "releasing→follower", "lost 1.1", "error"}, s.heard())
		s.finish()
	})
}

func TestTheLoopCountsAsBusyWhileABackendKeepsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := launch(t, leader.Config{}, slowly(acquires(1), time.Second), slowly(releases(), time.Second), releases(), closes())
		assert.True(t, s.Busy(), "an attempt")
		s.at(time.Second)
		assert.False(t, s.Busy(), "a leader")
		go func() { _ = s.StepDown(context.Background()) }()
		synctest.Wait()
		assert.True(t, s.Busy(), "a release")
		s.at(2 * time.Second)
		assert.False(t, s.Busy(), "a follower")
		s.finish()
	})
}
