package leader_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/driver"
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

// A worker is a node whose work reports when it meets that of another node.
type worker struct {
	t       *testing.T
	elector *leader.Elector
	backend *leadertest.Backend
	random  *rand.Rand
	busy    *atomic.Pointer[worker] // whose work runs
	runs    *atomic.Int64
	met     *atomic.Int64
	cut     bool
	stop    context.CancelFunc
	stopped chan struct{}
}

func (w *worker) work(ctx context.Context) error {
	w.runs.Add(1)
	if w.busy.Swap(w) != nil {
		w.met.Add(1)
	}
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), leader.ErrReleased) { // it may take its time, unless leadership is lost meanwhile
		bubble.Sleep(time.Millisecond)
		for until := time.Now().Add(rand.N(20 * time.Second)); w.elector.State() == leader.Releasing && time.Now().Before(until); {
			bubble.Sleep(5 * time.Millisecond)
		}
	}
	w.busy.CompareAndSwap(w, nil)
	return nil
}

func (w *worker) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w.stop, w.stopped = cancel, done
	go func() {
		defer close(done)
		assert.NoError(w.t, w.elector.Run(ctx, w.work))
	}()
}

// act does something to a node, or to its election.
func (w *worker) act() {
	switch w.random.IntN(9) {
	case 0:
		if !w.cut { // else it could not hear of it before its deadline
			w.backend.Kill()
		}
	case 1:
		w.cut = true
		w.backend.Cut()
	case 2, 3:
		w.cut = false
		w.backend.Heal()
	case 4:
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		go func() {
			defer cancel()
			assert.NoError(w.t, w.elector.StepDown(ctx))
		}()
	case 5:
		w.stop()
	case 6:
		w.stop()
		<-w.stopped
		w.run()
	case 7:
		w.backend.SetUnavailable(errors.New("refused"))
	case 8:
		w.backend.SetUnavailable(nil)
	}
}

func TestWhateverHappensTwoLeadersAreNeverAtWork(t *testing.T) {
	t.Parallel()
	for seed := range soak.Size[uint64](t, 15, 50) {
		synctest.Test(t, func(t *testing.T) {
			assert.Zero(t, simulate(t, seed, 10*time.Millisecond), "seed %d", seed)
		})
	}
}

// The control: without the delay, a leader that is killed hears of it too late.
func TestTheSimulationFindsTwoLeaders(t *testing.T) {
	t.Parallel()
	met := 0
	for seed := uint64(0); seed < 1000 && met == 0; seed++ {
		synctest.Test(t, func(t *testing.T) { met += simulate(t, seed, 0) })
	}
	assert.Positive(t, met)
}

// simulate returns how often work of two nodes met.
func simulate(t *testing.T, seed uint64, settle time.Duration) int {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // reproducible
	election := leadertest.NewElection()
	var busy atomic.Pointer[worker]
	var runs, met atomic.Int64
	reading, done := context.WithCancel(context.Background())
	defer done()
	workers := make([]*worker, 3)
	for i := range workers {
		w := &worker{
			t: t, backend: election.Backend(), busy: &busy, runs: &runs, met: &met,
			random: rand.New(rand.NewPCG(seed, uint64(i+1))), //nolint:gosec // reproducible
		}
		var err error
		w.elector, err = leader.New(leader.Config{
			Name: "simulated", Backend: w.backend, SettleDelay: settle,
			ReconnectGrace: time.Duration(random.IntN(2)) * 8 * time.Second,
		})
		require.NoError(t, err)
		go checkHistory(t, w.elector.Events(reading))
		w.run()
		workers[i] = w
	}
	for range 150 {
		workers[random.IntN(len(workers))].act()
		bubble.Sleep(time.Duration(random.ExpFloat64() * float64(3*time.Second)))
	}
	assert.Greater(t, runs.Load(), int64(1))
	for _, w := range workers {
		w.backend.SetUnavailable(nil)
		w.backend.Heal()
		w.stop()
	}
	for _, w := range workers {
		<-w.stopped
		assert.Equal(t, leader.Stopped, w.elector.State())
	}
	bubble.Sleep(driver.DefaultLeaseDuration) // for what a node that was cut off could not release
	_, led := election.Leader()
	assert.False(t, led, "nothing is held")
	done()
	synctest.Wait()
	return int(met.Load())
}
