package leader_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/leadertest"
)

// checkHistory reads a stream until it ends and checks that every Acquired is
// followed by one end before the next, and nothing comes after Stopped but a start.
func checkHistory(t *testing.T, events func(func(leader.Event) bool)) (acquired int) {
	t.Helper()
	var judged judge.Events
	stopped := true
	for v := range events {
		last := judged.Term
		assert.Empty(t, judged.See(v.Kind.String(), v.Term), "%v in term %v", v.Kind, v.Term)
		switch v.Kind {
		case leader.EventStateChange:
			if v.From == leader.Stopped {
				assert.True(t, stopped, "a start while started")
				stopped = false
			}
		case leader.EventAcquired:
			acquired++
		case leader.EventRecovered:
			assert.True(t, v.Term.Follows(last))
		case leader.EventStopped:
			stopped = true
			continue
		}
		assert.False(t, stopped, "%v after Stopped", v.Kind)
	}
	assert.False(t, judged.Leads)
	assert.True(t, stopped)
	return acquired
}

// Fifty goroutines do whatever an Elector can do, while its sessions are killed and
// another node competes.
func TestEverythingAtOnceKeepsTheHistoryLegal(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	election := leadertest.NewElection()
	backend := election.Backend()
	var working atomic.Int64 // of both nodes: work of one leadership at a time, unless it was lost
	e, err := leader.New(leader.Config{
		Name: "race", Backend: backend, LeaseDuration: time.Second, ReconnectGrace: 10 * time.Millisecond,
		Retry: backoff.Fixed{Interval: time.Millisecond},
	})
	require.NoError(t, err)
	rival, err := leader.New(leader.Config{
		Name: "race", Backend: election.Backend(), LeaseDuration: time.Second, Retry: backoff.Fixed{Interval: time.Millisecond},
	})
	require.NoError(t, err)

	var readers sync.WaitGroup
	reading, done := context.WithCancel(context.Background())
	defer done()
	acquired := make([]int, 3)
	for i, stream := range []func(func(leader.Event) bool){e.Events(reading), e.Events(reading), rival.Events(reading)} {
		readers.Go(func() { acquired[i] = checkHistory(t, stream) })
	}
	require.NoError(t, rival.Start(ctx))

	work := func(ctx context.Context) error {
		assert.Positive(t, working.Add(1))
		defer working.Add(-1)
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rand.N(2_000_000))):
		}
		return nil
	}
	short := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Duration(rand.N(5_000_000)))
	}
	acts := []func(){
		func() { assert.NoError(t, e.Start(ctx)) },
		func() { assert.NoError(t, e.Start(ctx)) },
		func() {
			soon, cancel := short()
			defer cancel()
			_ = e.Shutdown(soon)
		},
		func() { assert.NoError(t, e.Shutdown(ctx)) },
		func() {
			soon, cancel := short()
			defer cancel()
			_ = e.StepDown(soon)
		},
		func() { assert.NoError(t, e.StepDown(ctx)) },
		func() {
			soon, cancel := short()
			defer cancel()
			_ = e.WaitForLeadership(soon)
		},
		func() {
			soon, cancel := short()
			defer cancel()
			assert.NoError(t, e.Run(soon, work))
		},
		func() {
			soon, cancel := short()
			defer cancel()
			for range e.Events(soon) {
				break
			}
		},
		func() { e.Resign(nil) },
		func() {
			lead := e.Context()
			if lead.Err() == nil {
				_ = e.Term().Compare(leader.TermOfContext(lead))
			}
			_, _, err := e.Leader(ctx)
			assert.NoError(t, err)
			_, _ = e.IsLeader(), e.State()
		},
		backend.Kill,
		func() { assert.NoError(t, rival.StepDown(ctx)) },
	}
	var callers sync.WaitGroup
	for i := range 50 {
		callers.Go(func() {
			for range 300 {
				acts[(i+rand.N(len(acts)))%len(acts)]()
			}
		})
	}
	callers.Wait()
	require.NoError(t, ctx.Err(), "somebody hung")
	require.NoError(t, e.Start(ctx))
	require.NoError(t, e.Shutdown(ctx))
	require.NoError(t, rival.Shutdown(ctx))
	done()
	readers.Wait()
	assert.Zero(t, working.Load())
	assert.Equal(t, leader.Stopped, e.State())
	assert.Equal(t, acquired[0], acquired[1], "two readers read the same")
	t.Logf("led %d times beside %d of the rival", acquired[0], acquired[2])
}
