package riverlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

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
