package prometheus_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

// elector returns one that is watched, and what stops that.
func (s *scene) elector(backend leader.Backend) (e *leader.Elector, stop func()) {
	s.Helper()
	e, err := leader.New(leader.Config{Name: "scheduler", Backend: backend, Retry: backoff.Fixed{Interval: time.Second}})
	require.NoError(s, err)
	stop = s.metrics.Watch(e)
	s.Cleanup(stop)
	return e, stop
}

func TestAnElectionIsShownByTheNamesOfClientGo(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		e, stop := s.elector(leadertest.NewElection().Backend())
		assert.Equal(s, 1, testutil.CollectAndCount(s.metrics, "leader_election_master_status"), "before it leads, too")
		assert.Equal(s, 4, testutil.CollectAndCount(s.metrics, "leader_election_transitions_total"))
		s.expect("leader_election_state", `{database="",name="scheduler",state="stopped"} 1`)
		require.NoError(s, e.Start(s.Context()))
		require.NoError(s, e.WaitForLeadership(s.Context()))
		synctest.Wait()
		s.expect("leader_election_master_status", `{database="",name="scheduler"} 1`)
		s.expect("leader_election_state", `{database="",name="scheduler",state="leader"} 1`)
		s.expect("leader_election_term_era", `{database="",name="scheduler"} 1`)
		s.expect("leader_election_term_number", `{database="",name="scheduler"} 1`)
		s.expect("leader_election_leading_since_timestamp_seconds", `{database="",name="scheduler"} 9.466848e+08`) // the year 2000
		require.NoError(s, e.Shutdown(s.Context()))
		synctest.Wait()
		s.expect("leader_election_master_status")
		s.expect("leader_election_leading_since_timestamp_seconds")
		s.expect("leader_election_term_number", `{database="",name="scheduler"} 1`)
		s.expect("leader_election_transitions_total", `{database="",name="scheduler",to="leader"} 1`, `{database="",name="scheduler",to="released"} 1`)
		stop()
		assert.Zero(s, testutil.CollectAndCount(s.metrics, "leader_election_master_status"))
		s.expect("leader_election_transitions_total", `{database="",name="scheduler",to="leader"} 1`, `{database="",name="scheduler",to="released"} 1`)
	})
}

func TestALossOfLeadershipIsCountedByItsReason(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		election := leadertest.NewElection()
		backend := election.Backend()
		e, _ := s.elector(backend)
		require.NoError(s, e.Start(s.Context()))
		require.NoError(s, e.WaitForLeadership(s.Context()))
		election.Kill()
		synctest.Wait()
		s.expect("leader_election_losses_total", `{database="",name="scheduler",reason="taken"} 1`)
		bubble.Sleep(time.Minute)
		require.True(s, e.IsLeader())
		backend.Cut()
		bubble.Sleep(time.Minute)
		require.False(s, e.IsLeader())
		s.expect("leader_election_master_status")
		s.expect("leader_election_losses_total", `{database="",name="scheduler",reason="taken"} 1`, `{database="",name="scheduler",reason="expired"} 1`)
		s.expect("leader_election_transitions_total", `{database="",name="scheduler",to="leader"} 2`, `{database="",name="scheduler",to="lost"} 2`)
		backend.Heal()
		require.NoError(s, e.Shutdown(s.Context()))
	})
}

func TestAttemptsThatFailAreCountedAndThoseInWhichAnotherLeadsAreNot(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		election := leadertest.NewElection()
		backend := election.Backend()
		e, _ := s.elector(backend)
		election.Steal("another", time.Hour)
		require.NoError(s, e.Start(s.Context()))
		bubble.Sleep(time.Minute)
		s.expect("leader_election_attempt_failures_total")
		backend.SetUnavailable(errors.New("no route to host"))
		bubble.Sleep(time.Minute)
		assert.NotEmpty(s, samples(s, s.registry, "leader_election_attempt_failures_total"))
		problems, err := testutil.GatherAndLint(s.registry)
		require.NoError(s, err)
		assert.Empty(s, problems)
		require.NoError(s, e.Shutdown(s.Context()))
	})
}

func TestWorkThatGoesOnTooLongIsCounted(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		e, _ := s.elector(leadertest.NewElection().Backend())
		ctx, stop := context.WithCancel(s.Context())
		begun, ended := make(chan struct{}), make(chan error)
		go func() {
			ended <- e.Run(ctx, func(context.Context) error {
				close(begun)
				bubble.Sleep(time.Hour)
				return nil
			})
		}()
		<-begun
		stop()
		bubble.Sleep(e.Config().DrainTimeout + time.Second)
		s.expect("leader_election_drains_exceeded_total", `{database="",name="scheduler"} 1`)
		<-ended
	})
}

func TestANodeShowsWhatItOwnsAndWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		backend := shardstest.NewStore().Backend()
		node, err := shards.New(shards.Config{Name: "tenants", Backend: backend, Count: 10})
		require.NoError(s, err)
		stop := s.metrics.WatchShards(node)
		s.expect("pglatch_shards_owned")
		assert.Equal(s, 1, testutil.CollectAndCount(s.metrics, "pglatch_shards_owned"), "before it runs, too")
		ctx, end := context.WithCancel(s.Context())
		done := make(chan error, 1)
		go func() {
			done <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil })
		}()
		bubble.Sleep(20 * time.Second)
		synctest.Wait()
		s.expect("pglatch_shards_owned", `{name="tenants"} 10`)
		s.expect("pglatch_shard_members", `{name="tenants"} 1`)
		s.expect("pglatch_shard_sessions", `{name="tenants"} 2`)
		backend.Kill(0)
		bubble.Sleep(20 * time.Second)
		end()
		require.NoError(s, <-done)
		for range 2 { // it is counted once
			s.expect("pglatch_shard_transitions_total", `{name="tenants",to="acquired"} 15`, `{name="tenants",to="released"} 10`, `{name="tenants",to="lost"} 5`)
			s.expect("pglatch_shards_owned")
			stop()
		}
	})
}
