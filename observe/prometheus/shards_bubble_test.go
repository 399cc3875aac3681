package prometheus_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

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
		time.Sleep(20 * time.Second)
		synctest.Wait()
		s.expect("pglatch_shards_owned", `{name="tenants"} 10`)
		s.expect("pglatch_shard_members", `{name="tenants"} 1`)
		s.expect("pglatch_shard_sessions", `{name="tenants"} 2`)
		backend.Kill(0)
		time.Sleep(20 * time.Second)
		end()
		require.NoError(s, <-done)
		for range 2 { // it is counted once
			s.expect("pglatch_shard_transitions_total", `{name="tenants",to="acquired"} 15`, `{name="tenants",to="released"} 10`, `{name="tenants",to="lost"} 5`)
			s.expect("pglatch_shards_owned")
			stop()
		}
	})
}
