package leader_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
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

func TestStartOfANodeThatCannotReachItsBackendSucceedsAndTheNodeTriesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{}, fails(), releases(), closes(), acquires(1), releases(), closes())
		require.NoError(t, s.WaitForLeadership(t.Context()))
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
					time.Sleep(time.Second)
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

func TestTheEndOfRunsContextIsStillTheEndOfTheElectorThatItStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{}, acquires(1), releases(), closes())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, s.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }))
		assert.Equal(t, leader.Stopped, s.State())
		s.finish()
	})
}
