//go:build integration

package election

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

// The successor's settle delay shows that it knows of the good order: it would
// not lead in this test otherwise.
func TestAStopEndsTheContextThenTheWorkAndThenFreesTheLock(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*member, context.Context) error{
		"shutdown": func(m *member, ctx context.Context) error { return m.Shutdown(ctx) },
		"stepdown": func(m *member, ctx context.Context) error { return m.StepDown(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := postgres.Config{DSN: pgtest.DSN(t)}
			careful := leader.Config{LeaseDuration: 5 * ttl, SettleDelay: time.Hour}
			judge := pgtest.Connect(t, backend.DSN)
			isFree := func() (free bool) {
				k1, k2, _ := election.Tag().Pair()
				assert.NoError(t, judge.QueryRow(context.Background(), "SELECT pg_try_advisory_xact_lock($1, $2)", k1, k2).Scan(&free))
				return free
			}
			ending, finish := make(chan error), make(chan struct{})
			a := join(t, "a", backend, leader.Config{LeaseDuration: careful.LeaseDuration}, func(ctx context.Context) {
				<-ctx.Done()
				ending <- context.Cause(ctx)
				<-finish
			})
			a.requireStory("acquired 1.1")
			a.requireWorks(1) // one that is stopped before it has begun never does

			stopped := make(chan error, 1)
			go func() { stopped <- stop(a, t.Context()) }()
			require.ErrorIs(t, receive(t, ending, "the work's context ended"), leader.ErrReleased)
			assert.False(t, a.IsLeader())
			for began := time.Now(); time.Since(began) < 2*careful.LeaseDuration; electiontest.Pause(t.Context(), ttl/20) {
				require.False(t, isFree(), "the lock is free while the work goes on")
			}
			require.Empty(t, stopped)
			a.requireStory("acquired 1.1")

			b := join(t, "b", backend, careful, nil)
			until(t, "b tries", func() bool { return b.State() == leader.Acquiring })
			close(finish)
			require.NoError(t, receive(t, stopped, "the stop"))
			a.requireStory("acquired 1.1", "released 1.1")
			b.requireStory("acquired 1.2")
			b.requireWorks(2) // a Run that begins after Shutdown would start b again
			require.NoError(t, b.Shutdown(t.Context()))
			assert.True(t, isFree())
		})
	}
}
