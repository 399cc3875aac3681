package leader_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/leader/services"
)

var errRefused = driver.Permanent(errors.New("leader: password authentication failed"))

func refusesForEver() call { return call{method: "TryAcquire", err: errRefused} }

func TestStartWaitsForTheFirstAttemptAndNotForASettleDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{SettleDelay: 2 * time.Second}, uncleanly(slowly(acquires(1), 2*time.Second)), releases(), closes())
		assert.Equal(t, 2*time.Second, time.Since(s.began))
		assert.False(t, s.IsLeader(), "it settles")
		s.at(4 * time.Second)
		assert.True(t, s.IsLeader())
		s.finish()
	})
}

func TestTheFirstRenewalIsAnIntervalAfterTheStartOfTheAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{}, slowly(acquires(1), 2*time.Second), renews(), releases(), closes())
		s.at(6 * time.Second)
		s.finish()
	})
}

func TestWhatNoAttemptCanMendEndsStartAndRunAfterTheFirst(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*scene) error{
		"Start": func(s *scene) error { return s.Start(s.t.Context()) },
		"Run": func(s *scene) error {
			return s.Run(s.t.Context(), func(context.Context) error { assert.Fail(s.t, "it leads"); return nil })
		},
		"WaitForLeadership": func(s *scene) error {
			go func() { _ = s.Start(s.t.Context()) }()
			return s.WaitForLeadership(s.t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := prepare(t, leader.Config{}, refusesForEver(), releases(), closes())
				err := begin(s)
				require.ErrorIs(t, err, leader.ErrPermanent)
				require.ErrorIs(t, err, leader.ErrGaveUp, "it stopped of itself")
				require.ErrorIs(t, err, leader.ErrConnection, "as errors of attempts do")
				require.ErrorIs(t, err, errRefused)
				require.EqualError(t, err, "leader: scheduler: password authentication failed")
				assert.Zero(t, time.Since(s.began))
				assert.Equal(t, []string{
					"stopped→follower", "follower→acquiring", "acquiring→stopped", "attempt failed", "error", "gave up",
				}, s.heard())
				s.finish()
			})
		})
	}
}

func TestKeepTryingOutlastsWhatNoAttemptMends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{KeepTrying: true}, refusesForEver(), releases(), closes(), refusesForEver(), releases(), closes(),
			acquires(1), releases(), closes())
		require.NoError(t, s.WaitForLeadership(t.Context()))
		s.finish()
	})
}

func TestAMistakeOfSomebodyAtWorkDoesNotEndANodeThatHasStood(t *testing.T) {
	t.Parallel()
	followed := make([]call, 9) // each 2 s: for longer than a lease
	for i := range followed {
		followed[i] = refuses()
	}
	for name, stands := range map[string][]call{
		"led":                              {acquires(1), losesLeadership(), closes()},
		"followed":                         followed,
		"followed, and met an outage then": append(followed[:9:9], fails(), releases(), closes()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := append(stands, refusesForEver(), releases(), closes(), refusesForEver(), releases(), closes(), acquires(7), releases(), closes())
				s := open(t, leader.Config{}, calls...)
				require.NoError(t, s.WaitForLeadership(t.Context()))
				for s.Term().N != 7 {
					bubble.Sleep(time.Second)
				}
				s.finish()
			})
		})
	}
}

func TestANodeThatMetAnotherCandidateIsToldAllTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // which fails as it does
		s := open(t, leader.Config{}, refuses(), refusesForEver(), releases(), closes())
		require.ErrorIs(t, s.WaitForLeadership(t.Context()), leader.ErrPermanent)
		s.finish()
	})
}

func TestWhatFailsForAReasonThatPassesMayFailForOneThatDoesNotLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{}, fails(), releases(), closes(), refusesForEver(), releases(), closes())
		require.ErrorIs(t, s.WaitForLeadership(t.Context()), leader.ErrPermanent, "it has never stood")
		s.finish()
	})
}

func TestTheEndOfStartsContextDuringTheFirstAttemptStopsTheNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{}, hangs(acquires(1)), releases(), closes())
		why := errors.New("the program does not start after all")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		require.ErrorIs(t, s.Start(ctx), why)
		assert.Equal(t, time.Second, time.Since(s.began))
		synctest.Wait()
		assert.Equal(t, leader.Stopped, s.State())
		s.finish()
	})
}

func TestASecondStartThatIsImpatientLeavesTheFirstAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := launch(t, leader.Config{}, slowly(acquires(1), 2*time.Second), releases(), closes())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.Start(ctx), context.DeadlineExceeded)
		require.NoError(t, s.WaitForLeadership(t.Context()))
		s.finish()
	})
}

func TestStartDoesNotWaitForWorkOfAnEarlierLeadership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{DrainTimeout: time.Second}, acquires(1), closes(), closes(), acquires(2), releases(), closes())
		end := make(chan struct{})
		go func() { _ = s.Run(t.Context(), func(context.Context) error { <-end; return nil }) }()
		synctest.Wait()
		require.NoError(t, s.Shutdown(t.Context()))
		before := time.Now()
		require.NoError(t, s.Start(t.Context()))
		assert.Zero(t, time.Since(before))
		close(end)
		require.NoError(t, s.WaitForLeadership(t.Context()))
		s.finish()
	})
}

func TestRunWithAnEndedContextDoesNotBeginItsWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		work := func(context.Context) error {
			assert.Fail(t, "work has begun")
			return nil
		}
		idle := prepare(t, leader.Config{})
		require.NoError(t, idle.Run(ended, work))
		assert.Empty(t, idle.heard(), "nor does it start anything")

		s := open(t, leader.Config{}, acquires(1), releases(), closes())
		synctest.Wait()
		require.True(t, s.IsLeader())
		require.NoError(t, s.Run(ended, work))
		s.finish()
	})
}

// stubborn is work that goes on after its context has ended.
func stubborn(until <-chan struct{}) func(context.Context) error {
	return func(context.Context) error { <-until; return nil }
}

func TestRunDoesNotWaitForAStopLongerThanItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{KeepUntilDrained: true}, acquires(1), renews(), releases(), closes())
		free := make(chan struct{})
		go func() { _ = s.Run(context.Background(), stubborn(free)) }()
		synctest.Wait()
		go func() { _ = s.Shutdown(context.Background()) }()
		synctest.Wait()

		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		require.NoError(t, s.Run(ctx, stubborn(nil)))
		assert.Equal(t, 6*time.Second, time.Since(s.began))
		close(free)
		s.finish()
	})
}

func TestRunEndsWithTheLifeOfItsElectorAndLeavesTheNextAlone(t *testing.T) {
	t.Parallel()
	for range 20 { // it was a matter of luck
		synctest.Test(t, func(t *testing.T) {
			s := prepare(t, leader.Config{}, acquires(1), releases(), closes(), acquires(2), releases(), closes())
			ran := make(chan error, 1)
			go func() {
				ran <- s.Run(t.Context(), func(ctx context.Context) error {
					<-ctx.Done()
					return nil
				})
			}()
			synctest.Wait()
			require.True(t, s.IsLeader())
			require.NoError(t, s.Shutdown(t.Context()))
			require.NoError(t, s.Start(t.Context()))
			synctest.Wait()
			select {
			case err := <-ran:
				require.NoError(t, err)
			default:
				assert.Fail(t, "Run goes on, in an election that it did not start")
			}
			assert.True(t, s.IsLeader(), "and Run has not stopped it")
			s.finish()
		})
	}
}

type runKey struct{}

func TestWorkGetsTheValuesOfItsRunAndTheTermOfItsLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{}, acquires(1), releases(), releases(), closes())
		ctx := context.WithValue(t.Context(), runKey{}, "of this Run")
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		synctest.Wait()
		require.NoError(t, s.Run(ctx, func(ctx context.Context) error {
			assert.Equal(t, "of this Run", ctx.Value(runKey{}))
			assert.Equal(t, leader.Term{Era: 1, N: 1}, leader.TermOfContext(ctx))
			child, end := context.WithCancel(ctx)
			defer end()
			go func() { _ = s.StepDown(context.Background()) }()
			<-child.Done()
			require.ErrorIs(t, context.Cause(child), leader.ErrReleased)
			cancel()
			return child.Err()
		}))
		synctest.Wait() // until it has stepped down
		s.finish()
	})
}

func TestAnElectorWithoutWorkDoesNotLead(t *testing.T) {
	t.Parallel()
	e, err := leader.New(leader.Config{Name: "scheduler", Backend: leadertest.NewElection().Backend()})
	require.NoError(t, err)
	var wrong *leader.ConfigError
	require.ErrorAs(t, e.Run(t.Context(), nil), &wrong)
	assert.Equal(t, leader.Stopped, e.State())
	_, err = leader.New(leader.Config{Name: "scheduler", Backend: leadertest.NewElection().Backend(), Identity: "\xff"})
	require.ErrorAs(t, err, &wrong)
}

// A starter is a Service whose Start is a function.
type starter func(ctx context.Context) error

func (s starter) Start(ctx context.Context) error { return s(ctx) }
func (starter) Stop(context.Context) error        { return nil }

func TestAnElectorThatDoesNotReacquireGivesUpWithItsWorksReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{LeadOnce: true}, acquires(1), releases(), closes())
		err := s.Run(t.Context(), func(ctx context.Context) error {
			s.Resign(errBroken)
			<-ctx.Done()
			return nil
		})
		require.ErrorIs(t, err, leader.ErrGaveUp, "nobody asked this node to stop")
		require.ErrorIs(t, err, errBroken)
	})
}

func serviceOf(name string, start func(context.Context) error) services.Spec {
	return services.Spec{Name: name, New: func(context.Context) (services.Service, error) { return starter(start), nil }}
}

func TestNoServiceIsMadeOnceLeadershipHasEnded(t *testing.T) {
	t.Parallel()
	for range 20 { // it was a matter of luck
		synctest.Test(t, func(t *testing.T) {
			election := leadertest.NewElection()
			e := node(t, election.Backend(), "a")
			first := serviceOf("first", func(ctx context.Context) error {
				e.Distrust()
				return nil
			})
			second := services.Spec{Name: "second", New: func(context.Context) (services.Service, error) {
				assert.Fail(t, "made on a follower")
				return nil, errors.New("not here")
			}}
			group, err := services.New(e, services.Config{Services: []services.Spec{first, second}})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.NoError(t, group.Run(ctx))
		})
	}
}

func TestWorkMayResignAndItsNodeTakesPartAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		overloaded := errors.New("overloaded")
		var reported []error
		s := prepare(t, leader.Config{Callbacks: leader.Callbacks{OnError: func(err error) { reported = append(reported, err) }}},
			acquires(1), releases(), acquires(2), releases(), closes())
		s.Resign(overloaded) // of nothing
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		terms := 0
		require.NoError(t, s.Run(ctx, func(ctx context.Context) error {
			if terms++; terms == 2 {
				assert.GreaterOrEqual(t, time.Since(s.began), 2*time.Second, "others had the first chance")
				cancel()
				return nil
			}
			s.Resign(overloaded)
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), leader.ErrReleased)
			return nil
		}))
		assert.Equal(t, 2, terms)
		assert.Equal(t, []error{overloaded}, reported)
		s.finish()
	})
}
