package riverlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/riverlock"
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
