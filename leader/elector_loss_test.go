package leader_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
)

// ended returns how long after the scene's begin a leader's context ends.
func (s *scene) ended(ctx context.Context) time.Duration {
	<-ctx.Done()
	return time.Since(s.began)
}

func TestTheDeadlineEndsLeadershipThoughMoreFailuresAreAllowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{MaxRenewFailures: 100, LossDrain: time.Second},
			acquires(1), renews(), hangs(renews()), hangs(renews()), closes(), refuses(), releases(), closes())
		synctest.Wait()
		ctx := s.Context()
		// The last good renewal began at 5 s; the lease of 15 s has a margin of 1.5 s.
		assert.Equal(t, 5*time.Second+15*time.Second-1500*time.Millisecond-time.Second, s.ended(ctx))
		assert.ErrorIs(t, context.Cause(ctx), leader.ErrLost)
		assert.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded, "the cause names the renewals")
		assert.False(t, s.IsLeader())
		synctest.Wait()
		s.finish()
	})
}

func TestARenewalIsTrustedFromItsStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{LossDrain: time.Second, RenewInterval: 5 * time.Second, RenewTimeout: 7 * time.Second},
			acquires(1), slowly(renews(), 6*time.Second), hangs(renews()), closes(), refuses(), releases(), closes())
		synctest.Wait()
		assert.Equal(t, 5*time.Second+12500*time.Millisecond, s.ended(s.Context()), "the renewal took from 5 s to 11 s")
		synctest.Wait()
		s.finish()
	})
}

func TestASlowAttemptIsRenewedBeforeItIsTrusted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{LossDrain: time.Second},
			slowly(acquires(1), 4*time.Second), renews(), hangs(renews()), hangs(renews()), closes(), refuses(), releases(), closes())
		require.NoError(t, s.WaitForLeadership(t.Context()))
		assert.Equal(t, 4*time.Second+12500*time.Millisecond, s.ended(s.Context()))
		synctest.Wait()
		s.finish()
	})
}

// The backend finished the attempt in the instant in which its time was over: the
// renewal that proves it has a time of its own.
func TestAnAttemptThatIsWonJustAsItsTimeEndsIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{LossDrain: time.Second},
			whatever(slowly(acquires(1), 5*time.Second+time.Millisecond)), slowly(renews(), time.Second), hangs(renews()), hangs(renews()), closes(), refuses(),
			releases(), closes())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, s.WaitForLeadership(ctx))
		assert.Equal(t, leader.Term{Era: 1, N: 1}, s.Term())
		assert.Equal(t, 5*time.Second+time.Millisecond+12500*time.Millisecond, s.ended(s.Context()), "trusted from the start of the renewal")
		synctest.Wait()
		s.finish()
	})
}

func TestASlowAttemptThatCannotBeRenewedHasFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{}, slowly(acquires(1), 4*time.Second), losesLeadership(), releases(), closes(), releases(), closes())
		s.at(4 * time.Second)
		assert.Equal(t, []string{"stopped→follower", "follower→acquiring", "acquiring→follower", "attempt failed", "error"}, s.heard())
		s.finish()
	})
}

func TestALossThatTheBackendTellsEndsTheContextAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{}, acquires(1), losesLeadership(), closes(), refuses(), releases(), closes())
		synctest.Wait()
		ctx := s.Context()
		bubble.Sleep(time.Second)
		s.script.lose()
		synctest.Wait()
		require.Error(t, ctx.Err())
		var lost *leader.LostError
		require.ErrorAs(t, context.Cause(ctx), &lost)
		assert.Equal(t, "scheduler", lost.Election)
		assert.Equal(t, leader.Term{Era: 1, N: 1}, lost.Term)
		assert.Equal(t, time.Second, lost.Held)
		assert.ErrorContains(t, lost, "terminated", "the backend was asked why")
		assert.NotContains(t, s.heard(), "released 1.1")
		s.finish()
	})
}

func TestARenewalUnderWayDoesNotDelayALossThatIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{}, acquires(1), hangs(renews()), closes(), refuses(), releases(), closes())
		s.at(6 * time.Second)
		ctx := s.Context()
		s.script.lose()
		synctest.Wait()
		require.ErrorIs(t, context.Cause(ctx), leader.ErrLost)
		s.finish()
	})
}

func TestWorkHasLossDrainToEndWhenTheLeaseRunsOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		takes    time.Duration
		reported time.Duration // when the loss is reported
	}{
		{"work that is quick", time.Second, 16500 * time.Millisecond},
		{"work that takes too long", time.Minute, 17500 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var s *scene
				var reported time.Duration
				s = prepare(t, leader.Config{
					LossDrain: 2 * time.Second, RenewInterval: 4 * time.Second, RenewTimeout: 4 * time.Second,
					Callbacks: leader.Callbacks{OnLost: func(leader.Term, error) { reported = time.Since(s.began) }},
				},
					acquires(1), renews(), failsToRenew(), hangs(renews()), hangs(renews()), closes(), refuses(), releases(), closes())
				ran := make(chan error, 1)
				go func() {
					ran <- s.Run(t.Context(), func(ctx context.Context) error {
						assert.Equal(t, 15500*time.Millisecond, s.ended(ctx), "4 s + 15 s - 1.5 s - LossDrain")
						bubble.Sleep(c.takes)
						return nil
					})
				}()
				s.at(15500*time.Millisecond + c.takes)
				s.finish()
				require.NoError(t, <-ran)
				assert.Equal(t, c.reported, reported)
			})
		})
	}
}

func TestANodeDoesNotStandForElectionBeforeItsOldWorkHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{LossDrain: -1}, acquires(1), losesLeadership(), closes(), acquires(2), releases(), closes())
		runs := 0
		ran := make(chan error, 1)
		go func() {
			ran <- s.Run(t.Context(), func(ctx context.Context) error {
				runs++
				<-ctx.Done()
				if runs == 1 {
					bubble.Sleep(time.Minute)
				}
				return nil
			})
		}()
		s.at(64 * time.Second)
		assert.Equal(t, leader.Follower, s.State())
		s.at(66 * time.Second)
		assert.Equal(t, leader.Leader, s.State())
		s.finish()
		require.NoError(t, <-ran)
		assert.Equal(t, 2, runs)
	})
}

func TestARecoveryWithinTheGraceStartsWorkAgainAndTellsNoLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		backend := election.Backend()
		s := prepare(t, leader.Config{Backend: backend, ReconnectGrace: 10 * time.Second})
		var terms []leader.Term
		ran := make(chan error, 1)
		go func() {
			ran <- s.Run(t.Context(), func(ctx context.Context) error {
				terms = append(terms, leader.TermOfContext(ctx))
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		synctest.Wait()
		before := s.Context()
		backend.SetUnavailable(errBroken)
		backend.Kill()
		synctest.Wait()
		assert.Equal(t, leader.Reconnecting, s.State())
		assert.False(t, s.IsLeader(), "a node that reconnects does not lead")
		assert.True(t, s.Term().IsZero())
		assert.ErrorIs(t, context.Cause(before), leader.ErrLost, "the context ends on entry")
		s.at(5 * time.Second)
		backend.SetUnavailable(nil)
		s.at(6 * time.Second)
		assert.True(t, s.IsLeader())
		assert.NotSame(t, before, s.Context())
		s.finish()
		require.NoError(t, <-ran)
		assert.Equal(t, []leader.Term{{Era: 1, N: 1}, {Era: 1, N: 2}}, terms)
		reported := s.heard()
		assert.Contains(t, reported, "recovered 1.2")
		assert.Contains(t, reported, "released 1.2")
		assert.NotContains(t, reported, "lost 1.1")
		assert.NotContains(t, reported, "acquired 1.2")
	})
}

func TestABackendWithoutTermsNeverRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		backend := leadertest.NewElection().Backend()
		s := open(t, leader.Config{Backend: struct {
			leader.Backend
			driver.LossNotifier
		}{backend, backend}, ReconnectGrace: 10 * time.Second})
		synctest.Wait()
		backend.Kill()
		synctest.Wait()
		reported := s.heard()
		assert.Contains(t, reported, "lost none")
		assert.Contains(t, reported, "acquired none")
		s.finish()
	})
}

func TestAStopDuringALossIsNoGivingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{}, acquires(1), losesLeadership(), closes(), closes())
		ran := make(chan error, 1)
		require.NoError(t, s.Start(t.Context()))
		go func() {
			ran <- s.Run(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				bubble.Sleep(10 * time.Second)
				return nil
			})
		}()
		synctest.Wait()
		go s.Shutdown(context.Background())
		s.at(2 * time.Second)
		assert.Equal(t, leader.Releasing, s.State())
		s.at(11 * time.Second)
		assert.NoError(t, <-ran)
		reported := s.heard()
		assert.Contains(t, reported, "lost 1.1", "the renewal at 5 s, while work drained")
		assert.Contains(t, reported, "stopped")
		s.finish()
	})
}

func TestSettleDelayWaitsForAPredecessorThatDidNotEndInOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		call call
		want time.Duration
	}{
		{"clean", acquires(7), 0},
		{"unclean", uncleanly(acquires(7)), 8 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := []call{c.call, releases(), closes()}
				if c.want > 0 {
					calls = []call{c.call, renews(), releases(), closes()}
				}
				s := open(t, leader.Config{SettleDelay: 8 * time.Second}, calls...)
				require.NoError(t, s.WaitForLeadership(t.Context()))
				assert.Equal(t, c.want, time.Since(s.began))
				s.finish()
			})
		})
	}
}

func TestALossWhileSettlingIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{SettleDelay: 8 * time.Second},
			uncleanly(acquires(7)), losesLeadership(), closes(), closes(), releases(), closes())
		s.at(6 * time.Second)
		assert.Equal(t, []string{"stopped→follower", "follower→acquiring", "acquiring→follower", "attempt failed", "error"}, s.heard())
		s.finish()
	})
}

func TestAStopWhileSettlingDropsLeadership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{SettleDelay: 4 * time.Second}, uncleanly(acquires(7)), closes(), closes())
		s.at(time.Second)
		s.finish()
		assert.Equal(t, []string{"stopped→follower", "follower→acquiring", "acquiring→stopped", "stopped"}, s.heard())
	})
}

func TestARecoveryOfOnesOwnTermNeedsNoSettling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{SettleDelay: 4 * time.Second, ReconnectGrace: 2 * time.Second},
			acquires(1), losesLeadership(), closes(), uncleanly(acquires(2)), releases(), closes())
		s.at(5 * time.Second)
		assert.Contains(t, s.heard(), "recovered 1.2")
		s.finish()
	})
}

// The backend answers attempts, and no renewal in time: each term ends by its lease. The control comes back at once.
func TestTermsThatKeepEndingEarlyAreFollowedByLongerPauses(t *testing.T) {
	t.Parallel()
	for name, hurries := range map[string]bool{"it waits": false, "it hurries": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const terms = 4
				var script []call
				for n := range uint64(terms) {
					script = append(script, acquires(n+1), hangs(renews()), hangs(renews()), closes())
				}
				var pauses []time.Duration
				var lost time.Time
				var causes []string
				refused := make(chan struct{}, 1)
				s := prepare(t, leader.Config{Callbacks: leader.Callbacks{
					OnAcquired: func(leader.Term) {
						if !lost.IsZero() {
							pauses = append(pauses, time.Since(lost))
						}
					},
					OnLost: func(_ leader.Term, err error) {
						lost = time.Now()
						causes = append(causes, err.Error())
					},
					OnAcquireFailed: func(error) { refused <- struct{}{} },
				}}, append(script, refuses(), releases(), closes())...)
				if hurries {
					s.Hurry()
				}
				require.NoError(t, s.Start(t.Context()))
				<-refused
				s.finish()
				require.Len(t, pauses, terms-1)
				assert.Zero(t, pauses[0], "most ends have another cause")
				if hurries {
					assert.Equal(t, make([]time.Duration, terms-1), pauses)
					return
				}
				for i, longest := range []float64{3, 6} {
					assert.InDelta(t, longest*0.75, pauses[i+1].Seconds(), longest*0.26)
				}
				const remedy = "the store took 5s to answer, and LeaseDuration is 15s: raise LeaseDuration"
				assert.NotContains(t, causes[0], remedy)
				assert.Contains(t, causes[1], remedy)
			})
		})
	}
}

// A term that lasted ends the count of those that ended early, even if the server ended it. The control is one that
// the server ended at once.
func TestATermThatLastedEndsTheCountOfEarlyEnds(t *testing.T) {
	t.Parallel()
	for name, renewals := range map[string]int{"lasted": 12, "control": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				early := func(n uint64) []call { return []call{acquires(n), hangs(renews()), hangs(renews()), closes()} }
				script := append(early(1), acquires(2))
				for range renewals {
					script = append(script, renews())
				}
				script = slices.Concat(script, []call{losesLeadership(), closes()}, early(3), []call{acquires(4), releases(), closes()})
				var lost time.Time
				var pause time.Duration
				fourth := make(chan struct{})
				s := prepare(t, leader.Config{Callbacks: leader.Callbacks{
					OnAcquired: func(term leader.Term) {
						if pause = time.Since(lost); term.N == 4 {
							close(fourth)
						}
					},
					OnLost: func(leader.Term, error) { lost = time.Now() },
				}}, script...)
				require.NoError(t, s.Start(t.Context()))
				<-fourth
				s.finish()
				assert.Equal(t, renewals > 0, pause == 0, "%v", pause)
			})
		})
	}
}
