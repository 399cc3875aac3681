package gocronlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/gocronlock"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/leader"
	electing "github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/once"
)

// A scheduler that is one of several, of which only one is to run each job.
type replica struct {
	options    []gocron.SchedulerOption
	jobOptions []gocron.JobOption
	bind       func(gocron.Scheduler)
}

// skips counts what gocron left out.
type skips struct{ atomic.Int32 }

func (s *skips) IncrementJob(_ uuid.UUID, _ string, _ []string, status gocron.JobStatus) {
	if status == gocron.Skip {
		s.Add(1)
	}
}

func (*skips) RecordJobTiming(time.Time, time.Time, uuid.UUID, string, []string) {}

// The contract of distributed instances, as gocron documents it, with its public API alone.
func TestOfSeveralSchedulersOneRunsAJob(t *testing.T) {
	t.Parallel()
	lockers := func() func(*testing.T) *gocronlock.Locker {
		store := memory()
		return func(t *testing.T) *gocronlock.Locker {
			t.Helper()
			return gocronlock.NewLocker(newRunner(t, store, nil), nil)
		}
	}
	for name, test := range map[string]struct {
		runs    int32
		replica func() func(t *testing.T) replica
	}{
		"a Locker of the schedulers": {1, func() func(*testing.T) replica {
			of := lockers()
			return func(t *testing.T) replica {
				t.Helper()
				l := of(t)
				return replica{options: []gocron.SchedulerOption{gocron.WithDistributedLocker(l)}, bind: l.Bind}
			}
		}},
		"a Locker of the job": {1, func() func(*testing.T) replica {
			of := lockers()
			return func(t *testing.T) replica {
				t.Helper()
				l := of(t)
				return replica{jobOptions: []gocron.JobOption{gocron.WithDistributedJobLocker(l)}, bind: l.Bind}
			}
		}},
		"a Locker that the job does without": {nodes, func() func(*testing.T) replica {
			of := lockers()
			return func(t *testing.T) replica {
				t.Helper()
				l := of(t)
				return replica{
					options:    []gocron.SchedulerOption{gocron.WithDistributedLocker(l)},
					jobOptions: []gocron.JobOption{gocron.WithDisabledDistributedJobLocker(true)}, bind: l.Bind,
				}
			}
		}},
		"an Elector": {1, func() func(*testing.T) replica {
			store := leasetest.NewStore()
			led := make(chan struct{}, 1)
			led <- struct{}{}
			return func(t *testing.T) replica {
				t.Helper()
				e := elect(t, store)
				select {
				case <-led: // the first one leads
					require.NoError(t, e.WaitForLeadership(t.Context()))
				default:
				}
				return replica{options: []gocron.SchedulerOption{gocron.WithDistributedElector(gocronlock.Elector{Leader: e})}, bind: func(gocron.Scheduler) {}}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ran atomic.Int32
			var left skips
			one := test.replica()
			for range nodes {
				r := one(t)
				s, err := gocron.NewScheduler(append(r.options, gocron.WithMonitor(&left), gocron.WithLocation(time.UTC))...)
				require.NoError(t, err)
				r.bind(s)
				_, err = s.NewJob(gocron.DurationJob(10*time.Hour), gocron.NewTask(func() { ran.Add(1) }),
					append(r.jobOptions, gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartImmediately()), gocron.WithLimitedRuns(1))...)
				require.NoError(t, err)
				s.Start()
				t.Cleanup(func() { assert.NoError(t, s.Shutdown()) })
			}
			await.Until(t, await.Patience, func() bool { return ran.Load()+left.Load() == nodes })
			assert.Equal(t, test.runs, ran.Load())
		})
	}
}

func elect(t *testing.T, store *leasetest.Store) *leader.Elector {
	t.Helper()
	backend, err := electing.New(store, electing.Config{Name: "scheduler"})
	require.NoError(t, err)
	e, err := leader.New(leader.Config{Name: "scheduler", Backend: backend, Identity: uuid.NewString()})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { assert.NoError(t, e.Shutdown(context.Background())) })
	return e
}

func TestAnElectorThatDoesNotLeadSaysSo(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	first := elect(t, store)
	require.NoError(t, first.WaitForLeadership(t.Context()))
	second := elect(t, store)
	require.NoError(t, gocronlock.Elector{Leader: first}.IsLeader(t.Context()))
	require.ErrorIs(t, gocronlock.Elector{Leader: second}.IsLeader(t.Context()), leader.ErrNotLeader)
}

func TestWhoRanItIsInTheErrorOfLock(t *testing.T) {
	t.Parallel()
	store := memory()
	start := time.Now().UTC().Truncate(time.Minute).Add(time.Second)
	for _, node := range []string{"a", "b"} {
		f := newFixture(t, newRunner(t, store, func(c *once.Config) { c.Node = node }), start)
		f.job(t, gocron.CronJob("* * * * *", false), func() {})
		if err := f.pass(t, 59*time.Second); node == "b" {
			var taken *once.TakenError
			require.ErrorAs(t, err, &taken)
			assert.Equal(t, "a", taken.Node)
		} else {
			require.NoError(t, err)
			require.NoError(t, f.StopJobs())
		}
	}
}

// gocron says that a job failed, and not for which tick.
func TestAFailureIsNotNotedForAnotherTickOfTheJobThatRuns(t *testing.T) {
	t.Parallel()
	store := memory()
	cause := errors.New("no paper")
	f := newFixture(t, newRunner(t, store, func(c *once.Config) { c.Retry = func(error) bool { return true } }), time.Now().UTC().Truncate(time.Minute).Add(-2*time.Minute+time.Second))
	var runs atomic.Int32
	began := make(chan struct{}, 2)
	first, second := make(chan error), make(chan error)
	f.job(t, gocron.CronJob("* * * * *", false), func() error {
		result := first
		if runs.Add(1) == 2 {
			result = second
		}
		began <- struct{}{}
		return <-result
	})
	for range 2 {
		require.NoError(t, planned(t.Context(), f.report, f.clock))
		f.clock.Advance(time.Minute)
		<-began
	}
	first <- cause
	require.ErrorIs(t, <-f.events, cause)
	second <- nil
	require.NoError(t, <-f.events)
	require.NoError(t, f.StopJobs()) // after Unlock
	records, err := store.Look(t.Context(), "report", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Len(t, records, 2)
	assert.Equal(t, once.Ran, records[1].State, "of the second tick, whose run did not fail")
}
