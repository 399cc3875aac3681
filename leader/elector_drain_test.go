package leader_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/capture"
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
			bubble.Sleep(takes)
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
				var led []bool // when OnError gets ErrDrainExceeded; a program may then end itself
				s := open(t, leader.Config{
					Backend: election.Backend(), DrainTimeout: 10 * time.Second, KeepUntilDrained: c.keep, Logger: book.Logger(),
					Callbacks: leader.Callbacks{OnError: func(err error) {
						assert.ErrorIs(t, err, leader.ErrDrainExceeded)
						holder, ok := election.Leader()
						led = append(led, ok && holder.Identity != "successor")
					}},
				})
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
				synctest.Wait()
				assert.NotEmpty(t, led)
				assert.Equal(t, c.keep, slices.Contains(led, true))
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

func TestAStepDownWhoseTimeEndsCyclesTheBackend(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config leader.Config
		warns  bool // that DrainTimeout has passed
	}{
		"while work ends":                 {leader.Config{}, false},
		"before leadership would be kept": {leader.Config{KeepUntilDrained: true}, false},
		"while leadership is kept":        {leader.Config{KeepUntilDrained: true, DrainTimeout: time.Second}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				election := leadertest.NewElection()
				var book capture.Text
				c.config.Backend, c.config.Logger = election.Backend(), book.Logger()
				s := open(t, c.config)
				ran := s.employ(20 * time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				err := s.StepDown(ctx)
				assert.Equal(t, 3*time.Second, time.Since(s.began))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				_, led := election.Leader()
				assert.False(t, led, "leadership is free, though work goes on")
				assert.Equal(t, c.warns, strings.Contains(book.String(), "work did not end"))
				other := election.Backend()
				ok, err := other.TryAcquire(t.Context(), "other", time.Hour)
				require.NoError(t, err)
				assert.True(t, ok)
				assert.False(t, other.CleanStart(), "its end was not in order")
				s.finish()
				require.NoError(t, <-ran)
			})
		})
	}
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
