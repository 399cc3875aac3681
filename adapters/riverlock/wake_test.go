package riverlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/riverlock"
	"github.com/pglatch/pglatch/internal/test/dbtest"
)

// never has no job worked again because time went by, and none wait in a worker.
var never = &riverlock.Config{Wait: -1, Snooze: time.Hour, Watch: 100 * time.Millisecond}

// holding returns the work of jobs "hold", which last until release is called, and of
// others, which do nothing.
func holding() (do work, holds <-chan struct{}, release func()) {
	began, end := make(chan struct{}, 10), make(chan struct{})
	do = func(ctx context.Context, job *river.Job[syncArgs]) error {
		if job.Args.What != "hold" {
			return nil
		}
		began <- struct{}{}
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return do, began, func() { close(end) }
}

func in(queue string) *river.InsertOpts { return &river.InsertOpts{Queue: queue} }

func TestAJobThatEndsWakesOneThatAProcessWhichIsGoneHadSnoozed(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	do, holds, release := holding()
	holder := startNode(t, dsn, never, do, "a")
	gone := startNode(t, dsn, never, do, "b")
	holder.insert(t, syncArgs{Agent: 42, What: "hold"}, in("a"))
	<-holds
	job := gone.insert(t, syncArgs{Agent: 42}, in("b"))
	gone.await(t, river.EventKindJobSnoozed, job.ID)
	gone.stop()
	next := startNode(t, dsn, never, do, "b") // which has never heard of the key

	release()
	done := next.await(t, river.EventKindJobCompleted, job.ID)
	assert.Equal(t, 1, done.Job.Attempt)
}

func TestAJobGoesOnWhenAHolderThatIsNoJobReleases(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	lock, err := openLocker(t, dsn).Acquire(t.Context(), agents.ID(42))
	require.NoError(t, err)
	do, _, _ := holding()
	n := startNode(t, dsn, never, do, "a")
	job := n.insert(t, syncArgs{Agent: 42}, in("a"))
	n.await(t, river.EventKindJobSnoozed, job.ID)

	require.NoError(t, lock.Release())
	n.await(t, river.EventKindJobCompleted, job.ID)
}

func TestAJobGoesOnWhenTheSessionOfTheHolderEnds(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	lock, err := openLocker(t, dsn).Acquire(t.Context(), agents.ID(42))
	require.NoError(t, err)
	do, _, _ := holding()
	n := startNode(t, dsn, never, do, "a")
	job := n.insert(t, syncArgs{Agent: 42}, in("a"))
	n.await(t, river.EventKindJobSnoozed, job.ID)

	_, err = n.pool.Exec(t.Context(), "SELECT pg_terminate_backend($1)", int32(lock.PID()))
	require.NoError(t, err)
	n.await(t, river.EventKindJobCompleted, job.ID)
}

func TestAPausedQueueDoesNotKeepTheKeyFromOthers(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	do, holds, release := holding()
	n := startNode(t, dsn, never, do, "a", "paused")
	n.insert(t, syncArgs{Agent: 42, What: "hold"}, in("a"))
	<-holds
	stays := n.insert(t, syncArgs{Agent: 42}, in("paused"))
	n.await(t, river.EventKindJobSnoozed, stays.ID)
	goes := n.insert(t, syncArgs{Agent: 42}, in("a"))
	n.await(t, river.EventKindJobSnoozed, goes.ID)
	require.NoError(t, n.QueuePause(t.Context(), "paused", nil))

	release()
	n.await(t, river.EventKindJobCompleted, goes.ID)
	require.NoError(t, n.QueueResume(t.Context(), "paused", nil))
	n.insert(t, syncArgs{Agent: 42}, in("a")) // its end wakes the other
	n.await(t, river.EventKindJobCompleted, stays.ID)
}

func TestAPanicReleasesTheLockAndWakesTheNext(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	began, end := make(chan struct{}), make(chan struct{})
	panics := startNode(t, dsn, never, func(context.Context, *river.Job[syncArgs]) error {
		close(began)
		<-end
		panic("in the work of a job")
	}, "a")
	do, _, _ := holding()
	other := startNode(t, dsn, never, do, "b")
	failed := panics.insert(t, syncArgs{Agent: 42}, &river.InsertOpts{Queue: "a", MaxAttempts: 1})
	<-began
	job := other.insert(t, syncArgs{Agent: 42}, in("b"))
	other.await(t, river.EventKindJobSnoozed, job.ID)

	close(end)
	assert.Equal(t, "in the work of a job", panics.await(t, river.EventKindJobFailed, failed.ID).Job.Errors[0].Error)
	other.await(t, river.EventKindJobCompleted, job.ID)
}

func TestAUniqueJobStaysUniqueWhileItIsSnoozedAndWoken(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	do, holds, release := holding()
	n := startNode(t, dsn, never, do, "a")
	n.insert(t, syncArgs{Agent: 42, What: "hold"}, in("a"))
	<-holds
	unique := &river.InsertOpts{Queue: "a", UniqueOpts: river.UniqueOpts{ByArgs: true}}
	job := n.insert(t, syncArgs{Agent: 42}, unique)
	n.await(t, river.EventKindJobSnoozed, job.ID)
	again, err := n.Insert(t.Context(), syncArgs{Agent: 42}, unique)
	require.NoError(t, err)
	assert.True(t, again.UniqueSkippedAsDuplicate)

	release()
	n.await(t, river.EventKindJobCompleted, job.ID)
}

func TestTheTablesOfRiverMayBeInASchema(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	admin := dbtest.Pool(t, dsn)
	_, err := admin.Exec(t.Context(), `CREATE SCHEMA "the jobs"`)
	require.NoError(t, err)
	for _, name := range []string{"river_job", "river_queue"} {
		_, err = admin.Exec(t.Context(), `ALTER TABLE `+name+` SET SCHEMA "the jobs"`)
		require.NoError(t, err)
	}
	locks, err := riverlock.New(openLocker(t, dsn), admin, riverlock.Config{Key: riverlock.Args(keyOfAgent), Schema: "the jobs"})
	require.NoError(t, err)
	defer locks.Close()
	waiting, err := riverlock.Wake(t.Context(), locks, agents.ID(42))
	require.NoError(t, err)
	assert.Zero(t, waiting)
}
