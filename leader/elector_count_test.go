package leader_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leadertest"
)

// cutOff lets a node lead, takes its network away, and returns how long after its last
// good renewal it stopped, and another could lead. lead returns when the node leads, and
// a function that returns when it has stopped.
func cutOff(t *testing.T, lead func(b *leadertest.Backend) (stopped func())) (stops, succeeds time.Duration) {
	t.Helper()
	election := leadertest.NewElection()
	node, other := election.Backend(), election.Backend()
	stopped := lead(node)
	began := time.Now()
	node.Cut()
	over := make(chan time.Duration)
	go func() {
		assert.NoError(t, other.Wait(context.Background()))
		over <- time.Since(began)
	}()
	stopped()
	return time.Since(began), <-over
}

func TestALeaderThatIsCutOffStopsByItsDeadlineWhateverTheCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		config := leader.Config{Name: "scheduler", MaxRenewFailures: 3}
		var elector *leader.Elector
		stops, succeeds := cutOff(t, func(b *leadertest.Backend) func() {
			config.Backend = b
			var err error
			elector, err = leader.New(config)
			require.NoError(t, err)
			require.NoError(t, elector.Start(t.Context()))
			require.NoError(t, elector.WaitForLeadership(t.Context()))
			ctx := elector.Context()
			return func() { <-ctx.Done() }
		})
		assert.Equal(t, 12*time.Second, stops, "lease - margin - LossDrain")
		assert.Equal(t, 15*time.Second, succeeds)
		require.NoError(t, elector.Shutdown(context.Background()))
	})
}

// The control: the same times, and nothing but a count.
func TestALeaderThatOnlyCountsOverlapsWithItsSuccessor(t *testing.T) {
	t.Parallel()
	config := leader.Config{Identity: "node", LeaseDuration: 15 * time.Second, RenewInterval: 5 * time.Second, MaxRenewFailures: 3}
	for failure, c := range map[string]struct {
		takes time.Duration // a renewal until it fails
		stops time.Duration
	}{
		"at once":        {0, 15 * time.Second},
		"by its timeout": {5 * time.Second, 20 * time.Second},
	} {
		t.Run(failure, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				stops, succeeds := cutOff(t, func(b *leadertest.Backend) func() {
					require.True(t, attempt(t, b, config))
					return func() { countFailures(b, config, c.takes) }
				})
				assert.Equal(t, c.stops, stops)
				assert.GreaterOrEqual(t, stops, succeeds, "it leads until then, and so does its successor")
			})
		})
	}
}

func attempt(t *testing.T, b leader.Backend, config leader.Config) bool {
	t.Helper()
	ok, err := b.TryAcquire(t.Context(), config.Identity, config.LeaseDuration)
	require.NoError(t, err)
	return ok
}

// countFailures leads until MaxRenewFailures renewals in a row have failed.
func countFailures(b leader.Backend, config leader.Config, takes time.Duration) {
	tick := time.NewTicker(config.RenewInterval)
	defer tick.Stop()
	for failures := 0; failures < config.MaxRenewFailures; {
		<-tick.C
		ctx, cancel := context.WithTimeout(context.Background(), takes)
		failures++
		if b.Renew(ctx, config.Identity, config.LeaseDuration) == nil {
			failures = 0
		}
		cancel()
	}
}

func TestOneFailedRenewalCostsNothingAndAsManyInARowAsConfiguredEndLeadership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, leader.Config{MaxRenewFailures: 3}, acquires(1), failsToRenew(), renews(), failsToRenew(), failsToRenew(), renews(),
			failsToRenew(), failsToRenew(), failsToRenew(), closes(), refuses(), releases(), closes())
		synctest.Wait()
		ctx := s.Context()
		s.at(5500 * time.Millisecond)
		assert.True(t, s.IsLeader(), "one failed; the next is due in half a second")
		s.at(12500 * time.Millisecond)
		assert.True(t, s.IsLeader(), "two failed after a good one")
		assert.Equal(t, 20*time.Second, s.ended(ctx), "three failed: 5 s after the last good one, and then each second")
		assert.ErrorContains(t, context.Cause(ctx), "3 renewals failed in a row")
		synctest.Wait()
		s.finish()
	})
}
