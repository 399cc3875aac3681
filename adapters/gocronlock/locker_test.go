package gocronlock_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/gocronlock"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/leased"
)

const (
	nodes   = 3
	periods = 6
)

// cluster starts nodes whose clocks are two seconds apart, half a minute before a tick. The node that is first on
// fires for each tick while the others' clocks have not reached it.
func cluster(t *testing.T, c nodeConfig) (all []node, ticks []time.Time, pool *pgxpool.Pool) {
	t.Helper()
	c.DSN = pgtest.DSN(t)
	pool = dbtest.Pool(t, c.DSN)
	_, err := pool.Exec(t.Context(), "CREATE TABLE runs (tick timestamptz, node text, token bigint)")
	require.NoError(t, err)
	first := time.Now().UTC().Truncate(time.Minute).Add(-3 * time.Minute)
	for i := range periods {
		ticks = append(ticks, first.Add(time.Duration(i)*time.Minute))
	}
	if !c.Control {
		c.Die = ticks[periods/2]
	}
	for i := range nodes {
		c.Name = string(rune('a' + i))
		c.Clock = first.Add(-30*time.Second - time.Duration(i)*2*time.Second)
		all = append(all, start(t, c))
	}
	return all, ticks, pool
}

func runs(t *testing.T, pool *pgxpool.Pool) map[time.Time]int {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT tick FROM runs")
	require.NoError(t, err)
	counts := make(map[time.Time]int)
	var tick time.Time
	for rows.Next() {
		require.NoError(t, rows.Scan(&tick))
		counts[tick.UTC()]++
	}
	require.NoError(t, rows.Err())
	return counts
}

func TestEachPeriodRunsOnceThoughClocksDifferAndANodeIsKilled(t *testing.T) {
	t.Parallel()
	all, ticks, pool := cluster(t, nodeConfig{})
	died := 0
	for i := range ticks {
		alive := make([]bool, len(all))
		var wg sync.WaitGroup
		for k, n := range all {
			wg.Go(func() { alive[k] = n.minute() })
			if i%2 == 0 { // one after the other, and else all at once
				wg.Wait()
			}
		}
		wg.Wait()
		var left []node
		for k, n := range all {
			if alive[k] {
				left = append(left, n)
			} else {
				died++
			}
		}
		all = left
	}
	assert.Equal(t, 1, died, "in the middle of a run")
	counts := runs(t, pool)
	for _, tick := range ticks {
		assert.Equal(t, 1, counts[tick], tick)
	}
	assert.Len(t, counts, periods)
	var token int64
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT token FROM runs WHERE tick = $1", ticks[periods/2]).Scan(&token))
	assert.EqualValues(t, 2, token, "who repeated the run has a higher token")
}

// The control: a lock around the job.
func TestALockAroundTheJobRunsAPeriodOncePerNode(t *testing.T) {
	t.Parallel()
	all, _, pool := cluster(t, nodeConfig{Control: true})
	for range periods {
		for _, n := range all {
			require.True(t, n.minute())
		}
	}
	total := 0
	for _, n := range runs(t, pool) {
		total += n
	}
	assert.Equal(t, nodes*periods, total)
}

// A fixture is one scheduler on a clock of its own, in this process.
type fixture struct {
	gocron.Scheduler
	locker *gocronlock.Locker
	clock  *clockwork.FakeClock
	report gocron.Job
	events chan error // of each time that the job fires: nil if it ran
}

func newRunner(t *testing.T, store once.Store, change func(*once.Config)) *once.Runner {
	t.Helper()
	c := once.Config{Store: store, Window: 20 * time.Hour, Early: once.MaxEarly}
	if change != nil {
		change(&c)
	}
	r, err := once.New(c)
	require.NoError(t, err)
	return r
}

func newFixture(t *testing.T, r *once.Runner, at time.Time, options ...gocron.SchedulerOption) *fixture {
	t.Helper()
	f := &fixture{locker: gocronlock.NewLocker(r, nil), clock: clockwork.NewFakeClockAt(at), events: make(chan error, 100)}
	s, err := gocron.NewScheduler(append([]gocron.SchedulerOption{gocron.WithClock(f.clock), gocron.WithLocation(time.UTC), gocron.WithDistributedLocker(f.locker)}, options...)...)
	require.NoError(t, err)
	f.Scheduler = s
	f.locker.Bind(s)
	t.Cleanup(func() { assert.NoError(t, s.Shutdown()) })
	return f
}

func (f *fixture) job(t *testing.T, definition gocron.JobDefinition, work any, options ...gocron.JobOption) {
	t.Helper()
	tell := func(_ uuid.UUID, _ string, err error) { f.events <- err }
	options = append(options, gocron.WithName("report"), gocron.WithEventListeners(
		gocron.AfterJobRuns(func(uuid.UUID, string) { f.events <- nil }), gocron.AfterLockError(tell),
		gocron.AfterJobRunsWithError(func(id uuid.UUID, name string, err error) {
			f.locker.Failed(id, name, err)
			f.events <- err
		}),
	))
	j, err := f.NewJob(definition, gocron.NewTask(work), options...)
	require.NoError(t, err)
	f.report = j
	f.Start()
}

// pass lets time pass on the clock, and returns what became of the job then.
func (f *fixture) pass(t *testing.T, d time.Duration) error {
	t.Helper()
	require.NoError(t, planned(t.Context(), f.report, f.clock))
	f.clock.Advance(d)
	return <-f.events
}

// planned waits until the scheduler has planned the next run of a job and set its timer: its clock stands still meanwhile, so
// that what it plans is not past.
func planned(ctx context.Context, j gocron.Job, clock *clockwork.FakeClock) error {
	for ctx.Err() == nil {
		next, err := j.NextRun()
		if err != nil {
			return err
		}
		if next.After(clock.Now()) {
			return clock.BlockUntilContext(ctx, 1)
		}
		runtime.Gosched()
	}
	return ctx.Err()
}

func memory() once.Store { return leased.New(leasetest.NewStore()) }

// Periods that began at different moments on each node: each node fires once in each, whenever that is, and however
// late its timers are, so that none is left out.
func TestNodesThatStartedAtDifferentMomentsRunEachPeriodOnce(t *testing.T) {
	t.Parallel()
	store, period := memory(), 10*time.Minute
	base := time.Now().Truncate(period).Add(-time.Hour)
	var ran atomic.Int32
	var all []*fixture
	for _, offset := range []time.Duration{0, 3 * time.Minute, period - time.Nanosecond} {
		f := newFixture(t, newRunner(t, store, nil), base.Add(offset))
		f.job(t, gocron.DurationJob(period), func() { ran.Add(1) })
		all = append(all, f)
	}
	for i := range periods {
		for _, f := range all {
			err := f.pass(t, period)
			if err != nil {
				require.ErrorIs(t, err, once.ErrTaken)
			}
		}
		assert.EqualValues(t, i+1, ran.Load())
	}
}

// The scheduled time counts, not the time at which the timer fires: a timer may be late by nearly a period.
func TestATimerThatIsLateRunsItsOwnTick(t *testing.T) {
	t.Parallel()
	store, period := memory(), time.Minute
	base := time.Now().UTC().Truncate(period).Add(-10 * period)
	f := newFixture(t, newRunner(t, store, nil), base.Add(time.Second))
	ticks := make(chan time.Time, 10)
	f.job(t, gocron.CronJob("* * * * *", false), func() {
		ctx, ok := f.locker.Context("report")
		assert.True(t, ok)
		claim, _ := once.ClaimOf(ctx)
		ticks <- claim.Tick
	})
	require.NoError(t, f.pass(t, 2*period-2*time.Second)) // 1m58s for a timer of 59s
	assert.Equal(t, base.Add(period), <-ticks)
	require.NoError(t, f.pass(t, time.Second))
	assert.Equal(t, base.Add(2*period), <-ticks)
	// Beyond: gocron itself leaves out what is past when it plans the next run, and Missed names it.
	require.NoError(t, f.pass(t, 3*period+time.Second))
	assert.Equal(t, base.Add(3*period), <-ticks)
	require.NoError(t, f.pass(t, period-time.Second))
	assert.Equal(t, base.Add(6*period), <-ticks)
	missed, err := newRunner(t, store, nil).Missed(t.Context(), "report", base.Add(period), func(after time.Time) time.Time {
		if after = after.Truncate(period).Add(period); after.After(base.Add(6 * period)) {
			return time.Time{}
		}
		return after
	})
	require.NoError(t, err)
	assert.Equal(t, []time.Time{base.Add(4 * period).Local(), base.Add(5 * period).Local()}, missed)
}

// The bound: a node's clock is ahead of the store's by less than Early, and behind it by less than the Window.
func TestANodeWhoseClockIsTooFarFromTheStoresRunsNothing(t *testing.T) {
	t.Parallel()
	soon, past := time.Now().UTC().Truncate(time.Minute).Add(5*time.Minute), time.Now().UTC().Truncate(time.Minute).Add(-5*time.Minute)
	for name, test := range map[string]struct {
		tick  time.Time
		bound time.Duration
		runs  bool
	}{
		"ahead": {soon, 6 * time.Minute, true}, "too far ahead": {soon, 3 * time.Minute, false},
		"behind": {past, 20 * time.Minute, true}, "too far behind": {past, 4 * time.Minute, false},
	} {
		r := newRunner(t, memory(), func(c *once.Config) {
			c.Window = test.bound
			if test.tick == soon {
				c.Early = test.bound
			}
		})
		f := newFixture(t, r, test.tick.Add(-time.Second))
		f.job(t, gocron.CronJob("* * * * *", false), func() {})
		if err := f.pass(t, time.Second); test.runs {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorIs(t, err, once.ErrWindow, name)
		}
	}
}

// When the hour comes twice, in autumn, gocron runs what is in it once, and so do all nodes together.
func TestDaylightSavingTimeChangesNothing(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for name, night := range map[string]time.Time{
		"autumn": time.Date(2026, 10, 25, 0, 0, 0, 0, berlin), "spring": time.Date(2026, 3, 29, 0, 0, 0, 0, berlin),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &ended{seen: make(map[time.Time]int)}
			var all []*fixture
			for i := range nodes {
				f := newFixture(t, newRunner(t, store, nil), night.Add(time.Duration(i)*time.Second), gocron.WithLocation(berlin))
				f.job(t, gocron.CronJob("30 * * * *", false), func() {})
				all = append(all, f)
			}
			for range 4 {
				for _, f := range all {
					require.NoError(t, planned(t.Context(), f.report, f.clock))
					next, err := f.report.NextRun()
					require.NoError(t, err)
					if err := f.pass(t, next.Sub(f.clock.Now())); err != nil {
						require.ErrorIs(t, err, once.ErrTaken)
					}
				}
			}
			store.mu.Lock()
			defer store.mu.Unlock()
			assert.Len(t, store.seen, 4)
			for tick, n := range store.seen {
				assert.Equal(t, nodes, n, tick)
			}
		})
	}
}

// ended is a store without a clock, which counts who asks for a tick.
type ended struct {
	once.Store
	mu   sync.Mutex
	seen map[time.Time]int
}

func (e *ended) Keeps() time.Duration { return 24 * time.Hour }

func (e *ended) Claim(_ context.Context, r once.Request) (once.Claim, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen[r.Tick]++; e.seen[r.Tick] > 1 {
		return once.Claim{}, &once.TakenError{Record: once.Record{Job: r.Job, Tick: r.Tick, State: once.Ran}}
	}
	return once.Claim{Job: r.Job, Tick: r.Tick, Remaining: r.TTL}, nil
}

func (e *ended) End(context.Context, once.Claim, once.State) error { return nil }

// gocron calls Unlock with a context that has ended when it stops.
func TestAJobThatEndsWhileTheSchedulerStopsIsNotedAsRun(t *testing.T) {
	t.Parallel()
	store := memory()
	base := time.Now().UTC().Truncate(time.Minute).Add(time.Second)
	f := newFixture(t, newRunner(t, store, nil), base)
	began, stopped := make(chan time.Time, 1), make(chan struct{})
	f.job(t, gocron.CronJob("* * * * *", false), func(ctx context.Context) {
		run, _ := f.locker.Context("report")
		claim, _ := once.ClaimOf(run)
		began <- claim.Tick
		<-ctx.Done() // the scheduler stops
		close(stopped)
	})
	require.NoError(t, planned(t.Context(), f.report, f.clock))
	f.clock.Advance(time.Minute)
	tick := <-began
	require.NoError(t, f.StopJobs())
	<-stopped
	require.NoError(t, <-f.events)
	result, err := newRunner(t, store, nil).Do(t.Context(), "report", tick, func(context.Context) error { return nil })
	require.NoError(t, err)
	assert.Equal(t, []any{false, once.Ran}, []any{result.Did, result.State})
}

func TestAJobThatFailsIsNotedAsFailed(t *testing.T) {
	t.Parallel()
	cause := errors.New("no paper")
	for name, wanted := range map[string]once.State{"failed": once.Failed, "given back": once.Open} {
		store := memory()
		r := newRunner(t, store, func(c *once.Config) { c.Retry = func(error) bool { return wanted == once.Open } })
		f := newFixture(t, r, time.Now().UTC().Truncate(time.Minute).Add(time.Second))
		f.job(t, gocron.CronJob("* * * * *", false), func() error { return cause })
		require.ErrorIs(t, f.pass(t, time.Minute), cause, name)
		await.Until(t, await.Patience, func() bool { // gocron unlocks after the job; a run whose scheduler stops before that is open again
			records, err := store.Look(t.Context(), "report", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
			return assert.NoError(t, err) && assert.Len(t, records, 1, name) && records[0].State == wanted
		}, name)
		require.NoError(t, f.StopJobs())
	}
}

func TestAJobWithoutATickIsNotRunAndTheErrorSaysWhy(t *testing.T) {
	t.Parallel()
	for text, f := range map[string]func(*fixture) gocron.JobDefinition{
		"are random":          func(*fixture) gocron.JobDefinition { return gocron.DurationRandomJob(time.Minute, 2*time.Minute) },
		"has no scheduler":    func(f *fixture) gocron.JobDefinition { f.locker.Bind(nil); return gocron.DurationJob(time.Minute) },
		"two jobs have":       func(f *fixture) gocron.JobDefinition { return gocron.DurationJob(time.Minute) },
		"set once.Config.Win": func(*fixture) gocron.JobDefinition { return gocron.DurationJob(time.Minute) },
	} {
		at := time.Now()
		if text == "set once.Config.Win" {
			at = at.Truncate(time.Minute).Add(-time.Hour - time.Second)
		}
		x := newFixture(t, newRunner(t, memory(), func(c *once.Config) { c.Window = time.Minute }), at)
		definition := f(x)
		if text == "two jobs have" {
			_, err := x.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(func() {}), gocron.WithName("report"))
			require.NoError(t, err)
		}
		x.job(t, definition, func() { t.Error("it ran: " + text) })
		d := time.Minute
		if text == "are random" {
			d *= 2
		}
		err := x.pass(t, d)
		require.ErrorContains(t, err, text)
		if text != "set once.Config.Win" {
			require.ErrorIs(t, err, gocronlock.ErrNoTick)
		}
	}
}
