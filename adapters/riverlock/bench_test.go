package riverlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/riverlock"
	"github.com/pglatch/pglatch/internal/test/dbtest"
)

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
