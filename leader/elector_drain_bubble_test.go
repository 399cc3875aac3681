package leader_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/leadertest"
)

// employ runs work that ends takes after its context, and notes both.
func (s *scene) employ(takes time.Duration) (ran <-chan error) {
	result := make(chan error, 1)
	go func() {
		result <- s.Run(s.t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			s.note("context ends")
			time.Sleep(takes)
			s.note("work returns")
			return context.Cause(ctx)
		})
	}()
	synctest.Wait()
	return result
}

func TestAStopEndsTheContextThenWaitsForWorkThenReleases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		var s *scene
		s = open(t, leader.Config{Backend: election.Backend(), DrainTimeout: time.Minute, Callbacks: leader.Callbacks{
			OnReleased: func(term leader.Term) {
				_, led := election.Leader()
				assert.False(t, led, "OnReleased comes after the release")
				s.note("released %v", term)
			},
		}})
		ran := s.employ(40 * time.Second)
		s.heard()
		go s.Shutdown(context.Background())
		s.at(39 * time.Second)
		holder, led := election.Leader()
		assert.True(t, led, "leadership is kept, far beyond its lease, until work has returned")
		assert.Equal(t, s.Config().Identity, holder.Identity)
		assert.Equal(t, leader.Releasing, s.State())
		assert.False(t, s.IsLeader())
		s.at(41 * time.Second)
		_, led = election.Leader()
		assert.False(t, led)
		s.finish()
		require.NoError(t, <-ran)
		reported := s.heard()
		require.Len(t, reported, 6)
		assert.ElementsMatch(t, []string{"leader→releasing", "context ends"}, reported[:2], "beside each other")
		assert.Equal(t, []string{"work returns", "releasing→stopped", "released 1.1", "stopped"}, reported[2:])
	})
}

func TestWorkThatGoesOnTooLong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		keep  bool
		free  time.Duration // when leadership is
		clean bool
	}{
		{"may overlap, and the successor knows", false, 10 * time.Second, false},
		{"keeps leadership", true, 70 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var book capture.Text
				election := leadertest.NewElection()
				s := open(t, leader.Config{Backend: election.Backend(), DrainTimeout: 10 * time.Second, KeepUntilDrained: c.keep, Logger: book.Logger()})
				ran := s.employ(70 * time.Second)
				stopped := make(chan struct{})
				go func() {
					defer close(stopped)
					_ = s.Shutdown(context.Background())
				}()
				successor := election.Backend()
				_, err := successor.TryAcquire(t.Context(), "successor", time.Hour)
				require.NoError(t, err)
				require.NoError(t, successor.Wait(t.Context()))
				assert.Equal(t, c.free, time.Since(s.began))
				ok, err := successor.TryAcquire(t.Context(), "successor", time.Hour)
				require.NoError(t, err)
				assert.True(t, ok)
				assert.Equal(t, c.clean, successor.CleanStart())
				<-stopped
				<-ran
				assert.Contains(t, book.String(), "work did not end")
				s.finish()
			})
		})
	}
}

func TestTheReleasedEventTellsThatWorkGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{DrainTimeout: time.Second}, acquires(1), closes(), closes())
		ran := s.employ(2 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		stream := s.Events(ctx)
		s.finish()
		cancel()
		for v := range stream {
			if v.Kind == leader.EventReleased {
				assert.ErrorIs(t, v.Err, leader.ErrDrainExceeded)
			}
		}
		<-ran
		assert.Contains(t, s.heard(), "error")
	})
}

// The process of this test is run again, and ends itself while it leads.
func TestWorkThatGoesOnTooLongCanEndTheProcess(t *testing.T) {
	if os.Getenv("PGLATCH_TEST_EXIT") == "" {
		t.Parallel()
		p := proctest.Tests(t, "^"+t.Name()+"$", "PGLATCH_TEST_EXIT=1")
		assert.Equal(t, 1, p.Wait())
		out := p.Stdout.String() + p.Stderr.String()
		assert.Contains(t, out, "keeping leadership until it does")
		assert.NotContains(t, out, "FAIL")
		assert.NotContains(t, out, "released")
		return
	}
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		s := open(t, leader.Config{
			Backend: election.Backend(), DrainTimeout: time.Second, KeepUntilDrained: true,
			Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)),
			Callbacks: leader.Callbacks{
				OnError: func(err error) {
					if _, led := election.Leader(); led && errors.Is(err, leader.ErrDrainExceeded) {
						os.Exit(1)
					}
				},
				OnReleased: func(leader.Term) { os.Stdout.WriteString("released") },
			},
		})
		s.employ(time.Hour)
		_ = s.Shutdown(context.Background())
		t.Fatal("it goes on")
	})
}

func TestAStepDownWhoseTimeEndsCyclesTheBackend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		s := open(t, leader.Config{Backend: election.Backend()})
		ran := s.employ(20 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := s.StepDown(ctx)
		assert.Equal(t, 3*time.Second, time.Since(s.began))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, led := election.Leader()
		assert.False(t, led, "leadership is free, though work goes on")
		other := election.Backend()
		ok, err := other.TryAcquire(t.Context(), "other", time.Hour)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.False(t, other.CleanStart(), "its end was not in order")
		s.finish()
		require.NoError(t, <-ran)
	})
}

func TestAStepDownWhoseTimeEndsDuringTheReleaseCyclesTheBackend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{}, acquires(1), hangs(releases()), closes(), releases(), closes())
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.StepDown(ctx), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(s.began))
		s.finish()
	})
}

func TestAStepDownWhoseTimeEndsEndsTheWaitForWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		s := open(t, leader.Config{Backend: election.Backend(), KeepUntilDrained: true, DrainTimeout: time.Second})
		ran := s.employ(20 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.ErrorIs(t, s.StepDown(ctx), context.DeadlineExceeded)
		_, led := election.Leader()
		assert.False(t, led)
		s.finish()
		require.NoError(t, <-ran)
	})
}

func TestANodeThatSteppedDownStandsAside(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		retry backoff.Strategy
		want  time.Duration
	}{
		{"for two seconds", backoff.Fixed{Interval: time.Millisecond, Jitter: -1}, 2 * time.Second},
		{"for its retry interval, if that is longer", backoff.Fixed{Interval: time.Minute, Jitter: -1}, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				backend := struct{ leader.Backend }{leadertest.NewElection().Backend()} // which does not know of others
				s := open(t, leader.Config{Backend: backend, Retry: c.retry})
				require.NoError(t, s.WaitForLeadership(t.Context()))
				require.NoError(t, s.StepDown(t.Context()))
				assert.False(t, s.IsLeader())
				require.NoError(t, s.WaitForLeadership(t.Context()))
				assert.Equal(t, c.want, time.Since(s.began))
				s.finish()
			})
		})
	}
}

func TestAStepDownLetsAnotherNodeLead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		a := open(t, leader.Config{Backend: election.Backend()})
		require.NoError(t, a.WaitForLeadership(t.Context()))
		b := open(t, leader.Config{Backend: election.Backend()})
		synctest.Wait()
		require.NoError(t, a.StepDown(t.Context()))
		require.NoError(t, b.WaitForLeadership(t.Context()))
		assert.Zero(t, time.Since(a.began), "it waits on the backend")
		a.at(time.Minute)
		assert.True(t, b.IsLeader())
		assert.False(t, a.IsLeader())
		b.finish()
		require.NoError(t, a.WaitForLeadership(t.Context()))
		a.finish()
	})
}

func TestAStepDownOfANodeThatDoesNotLeadDoesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prepare(t, leader.Config{}, refuses(), hangs(refuses()), releases(), closes())
		require.NoError(t, s.StepDown(t.Context()), "stopped")
		require.NoError(t, s.Start(t.Context()))
		s.at(time.Second)
		require.NoError(t, s.StepDown(t.Context()), "follower")
		s.at(3 * time.Second)
		assert.Equal(t, leader.Acquiring, s.State())
		require.NoError(t, s.StepDown(t.Context()), "acquiring")
		assert.Equal(t, leader.Acquiring, s.State())
		s.finish()
		require.NoError(t, s.StepDown(t.Context()), "stopped again")
	})
}

func TestAShutdownWhoseTimeEndsGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{}, acquires(1), renews(), releases(), closes())
		ran := s.employ(8 * time.Second)
		impatient := errors.New("impatient")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, impatient)
		defer cancel()
		require.ErrorIs(t, s.Shutdown(ctx), impatient)
		assert.Equal(t, leader.Releasing, s.State())
		s.finish()
		assert.Equal(t, 8*time.Second, time.Since(s.began))
		require.NoError(t, <-ran)
	})
}
