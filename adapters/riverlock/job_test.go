package riverlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertest"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/riverlock"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
)

// backlog inserts jobs of some agents into two queues, which two nodes work, and waits until
// all are completed.
func backlog(t *testing.T, dsn string, config *riverlock.Config, jobs, agents int, work work) *pgxpool.Pool {
	t.Helper()
	first := startNode(t, dsn, config, work, "left", "right")
	startNode(t, dsn, config, work, "right", "left")
	for i := range jobs {
		queue := []string{"left", "right"}[i%2]
		first.insert(t, syncArgs{Agent: int64(i % agents)}, &river.InsertOpts{Queue: queue})
	}
	await.Until(t, 2*patience, func() bool {
		var left int
		err := first.pool.QueryRow(t.Context(), "SELECT count(*) FROM river_job WHERE state <> 'completed'").Scan(&left)
		return err == nil && left == 0
	})
	return first.pool
}

func TestJobsOfOneKeyNeverOverlapAndAllAreWoken(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"with a moment in the worker": 0, "without": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, inside := database(t), newGauge()
			work := dbtest.Pool(t, dsn)
			var first sync.Once
			// Nobody is worked again by the end of a snooze.
			done := backlog(t, dsn, &riverlock.Config{Wait: wait, Snooze: time.Hour}, 60, 3, func(ctx context.Context, job *river.Job[syncArgs]) error {
				inside.enter(job.Args.Agent)
				defer inside.leave(job.Args.Agent)
				if wait < 0 {
					first.Do(func() { untilSnoozed(ctx, work) })
				}
				_, err := work.Exec(ctx, "SELECT pg_sleep(0.01)")
				return err
			})
			assert.Equal(t, 1, inside.count())

			var attempts, errors, snoozes, marked int
			require.NoError(t, done.QueryRow(t.Context(), `SELECT max(attempt), coalesce(sum(cardinality(errors)), 0),
				coalesce(sum((metadata->>'snoozes')::int), 0), count(metadata->>'`+riverlock.MetadataKey+`') FROM river_job`).
				Scan(&attempts, &errors, &snoozes, &marked))
			assert.Equal(t, 1, attempts, "a snooze uses no attempt")
			assert.Zero(t, errors)
			assert.True(t, snoozes > 0 || wait >= 0, "some had to wait outside of a worker")
			assert.Zero(t, marked, "no job that has run looks as if it waited")
			t.Logf("%d snoozes of 60 jobs", snoozes)
		})
	}
}

// untilSnoozed returns when a job was snoozed.
func untilSnoozed(ctx context.Context, db *pgxpool.Pool) {
	for found := false; !found; {
		if err := db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM river_job WHERE metadata ? 'snoozes')").Scan(&found); err != nil {
			return
		}
	}
}

// The control.
func TestJobsOfOneKeyOverlapWithoutTheMiddleware(t *testing.T) {
	t.Parallel()
	dsn, inside := database(t), newGauge()
	backlog(t, dsn, nil, 10, 1, func(ctx context.Context, job *river.Job[syncArgs]) error {
		inside.enter(job.Args.Agent)
		defer inside.leave(job.Args.Agent)
		select {
		case <-inside.met:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	assert.Greater(t, inside.count(), 1)
}

func TestJobsWithoutAKeyAndOfOtherKindsNeedNoLock(t *testing.T) {
	t.Parallel()
	key := riverlock.Args(keyOfAgent)
	none, err := key(&rivertype.JobRow{Kind: "other", EncodedArgs: []byte(`{"agent":42}`)})
	require.NoError(t, err)
	assert.False(t, none.Valid())
	some, err := key(&rivertype.JobRow{Kind: "sync", EncodedArgs: []byte(`{"agent":42}`)})
	require.NoError(t, err)
	assert.Equal(t, agents.ID(42), some)
	_, err = key(&rivertype.JobRow{ID: 7, Kind: "sync", EncodedArgs: []byte(`{"agent":"x"}`)})
	require.ErrorContains(t, err, "riverlock: arguments of job 7")
}

// terminateHolder ends the session that has the lock of agent 42; locks of other tests' databases
// are in the view too.
const terminateHolder = `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = 1 AND objid = 42
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

func TestALostLockEndsTheJobWhichIsRetried(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	causes := make(chan error, 1)
	admin := dbtest.Pool(t, dsn)
	n := startNode(t, dsn, never, func(ctx context.Context, job *river.Job[syncArgs]) error {
		if job.Attempt > 1 {
			return nil
		}
		if _, err := admin.Exec(context.WithoutCancel(ctx), terminateHolder); err != nil {
			return err
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil // as work that does not look at its context
	}, "a")
	job := n.insert(t, syncArgs{Agent: 42}, in("a"))

	failed := n.await(t, river.EventKindJobFailed, job.ID)
	var lost *advisory.LostError
	assert.ErrorAs(t, <-causes, &lost)
	require.Len(t, failed.Job.Errors, 1)
	assert.Contains(t, failed.Job.Errors[0].Error, "agent/42")
	done := n.await(t, river.EventKindJobCompleted, job.ID)
	assert.Equal(t, 2, done.Job.Attempt, "an attempt that began counts")
}

func TestAJobThatWaitsWhenItsClientStopsUsesNoAttempt(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	lock, err := openLocker(t, dsn).Acquire(t.Context(), agents.ID(42))
	require.NoError(t, err)
	do, _, _ := holding()
	n := startNode(t, dsn, &riverlock.Config{Wait: time.Hour, Snooze: time.Hour}, do, "a")
	job := n.insert(t, syncArgs{Agent: 42}, in("a"))
	await.Until(t, patience, func() bool { return n.locker.Stats().Waiting == 1 })

	n.stop()
	require.NoError(t, lock.Release())
	stopped, err := n.JobGet(t.Context(), job.ID)
	require.NoError(t, err)
	assert.Equal(t, rivertype.JobStateAvailable, stopped.State)
	assert.Zero(t, stopped.Attempt)
	next := startNode(t, dsn, never, do, "a")
	next.await(t, river.EventKindJobCompleted, job.ID)
}

func TestASnoozeUsesNoAttemptEvenOfAJobThatHasOnlyOne(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	db, locker := dbtest.Pool(t, dsn), openLocker(t, dsn)
	locks, err := riverlock.New(locker, db, riverlock.Config{Key: riverlock.Args(keyOfAgent), Wait: -1})
	require.NoError(t, err)
	defer locks.Close()
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	worker := rivertest.NewWorker(t, riverpgxv5.New(nil), &river.Config{Middleware: []rivertype.Middleware{locks}},
		river.WorkFunc(func(ctx context.Context, _ *river.Job[syncArgs]) error {
			_, err := locker.TryAcquire(context.WithoutCancel(ctx), agents.ID(42))
			assert.ErrorIs(t, err, advisory.ErrReentrant, "the job has the lock, and its context says so")
			return nil
		}))

	lock, err := locker.Acquire(t.Context(), agents.ID(42))
	require.NoError(t, err)
	snoozed, err := worker.Work(t.Context(), t, tx, syncArgs{Agent: 42}, &river.InsertOpts{MaxAttempts: 1})
	require.NoError(t, err)
	assert.Equal(t, river.EventKindJobSnoozed, snoozed.EventKind)
	assert.Zero(t, snoozed.Job.Attempt)
	assert.JSONEq(t, `{"pglatch:key": "1:42", "snoozes": 1}`, string(snoozed.Job.Metadata))

	require.NoError(t, lock.Release())
	locks.Close() // which ends the looks at the key: each holds the lock for a moment
	done, err := worker.WorkJob(t.Context(), t, tx, snoozed.Job)
	require.NoError(t, err)
	assert.Equal(t, river.EventKindJobCompleted, done.EventKind)
	assert.Equal(t, 1, done.Job.Attempt)
	assert.JSONEq(t, `{"pglatch:key": null, "snoozes": 1}`, string(done.Job.Metadata))
}

func TestAJobWhoseLockNobodyCanHaveFails(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	db, locker := dbtest.Pool(t, dsn), openLocker(t, dsn)
	locks, err := riverlock.New(locker, db, riverlock.Config{Key: riverlock.Args(keyOfAgent)})
	require.NoError(t, err)
	defer locks.Close()
	locker.Close()
	err = locks.Work(t.Context(), &rivertype.JobRow{ID: 7, Kind: "sync", EncodedArgs: []byte(`{"agent":42}`)}, func(context.Context) error { return nil })
	require.ErrorIs(t, err, advisory.ErrClosed)
	require.ErrorContains(t, err, "job 7")
}

func TestNewSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	locker, db := openLocker(t, dsn), dbtest.Pool(t, dsn)
	key := riverlock.Args(keyOfAgent)
	for field, try := range map[string]func() error{
		"locker":        func() error { _, err := riverlock.New(nil, db, riverlock.Config{Key: key}); return err },
		"db":            func() error { _, err := riverlock.New(locker, nil, riverlock.Config{Key: key}); return err },
		"Config.Key":    func() error { _, err := riverlock.New(locker, db, riverlock.Config{}); return err },
		"Config.Snooze": func() error { _, err := riverlock.New(locker, db, riverlock.Config{Key: key, Snooze: -1}); return err },
		"Config.Watch":  func() error { _, err := riverlock.New(locker, db, riverlock.Config{Key: key, Watch: -1}); return err },
	} {
		err := try()
		var bad *advisory.ConfigError
		if assert.True(t, errors.As(err, &bad), field) {
			assert.Equal(t, field, bad.Field)
		}
	}
}

// Backlog compares how long two clients take for jobs of one key, and of four: with jobs
// that try the lock themselves and snooze for a second, and with the Middleware. The unit is
// the ideal time, in which the jobs of a key follow each other without a gap.
//
//	go test -run '^$' -bench Backlog -benchtime 1x .
func BenchmarkBacklog(b *testing.B) {
	const jobs = 60
	for _, keys := range []int{1, 4} {
		for _, each := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond} {
			ideal := each * time.Duration(jobs/keys)
			for _, how := range []string{"snooze", "riverlock"} {
				b.Run(fmt.Sprintf("keys=%d/job=%v/%s", keys, each, how), func(b *testing.B) {
					for b.Loop() {
						took := workBacklog(b, how == "riverlock", jobs, keys, each)
						b.ReportMetric(took.Seconds()/ideal.Seconds(), "×ideal")
						b.ReportMetric(ideal.Seconds(), "s-ideal")
						b.ReportMetric(0, "ns/op")
					}
				})
			}
		}
	}
}

// workBacklog inserts the jobs, starts two clients, and returns how long it took from then
// until the last was done.
func workBacklog(b *testing.B, ours bool, jobs, keys int, each time.Duration) time.Duration {
	b.Helper()
	dsn := database(b)
	left := make(chan struct{}, jobs)
	insert, err := river.NewClient(riverpgxv5.New(dbtest.Pool(b, dsn)), &river.Config{})
	require.NoError(b, err)
	for i := range jobs {
		_, err := insert.Insert(b.Context(), syncArgs{Agent: int64(i % keys)}, nil)
		require.NoError(b, err)
	}
	var clients []*river.Client[pgx.Tx]
	for range 2 {
		db, locker := dbtest.Pool(b, dsn), openLocker(b, dsn)
		work := func(context.Context) error {
			<-time.After(each)
			left <- struct{}{}
			return nil
		}
		workers, config := river.NewWorkers(), &river.Config{Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}}}
		if ours {
			locks, err := riverlock.New(locker, db, riverlock.Config{Key: riverlock.Args(keyOfAgent)})
			require.NoError(b, err)
			defer locks.Close()
			config.Middleware = []rivertype.Middleware{locks}
			river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[syncArgs]) error { return work(ctx) }))
		} else {
			river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[syncArgs]) error {
				ran, err := locker.DoOrSkip(ctx, keyOfAgent(job.Args), work)
				if err == nil && !ran {
					return river.JobSnooze(time.Second)
				}
				return err
			}))
		}
		config.Workers = workers
		client, err := river.NewClient(riverpgxv5.New(db), config)
		require.NoError(b, err)
		clients = append(clients, client)
	}
	began := time.Now()
	for _, client := range clients {
		require.NoError(b, client.Start(context.WithoutCancel(b.Context())))
		defer func() { _ = client.Stop(context.Background()) }()
	}
	for range jobs {
		<-left
	}
	return time.Since(began)
}
