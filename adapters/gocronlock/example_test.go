package gocronlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/adapters/gocronlock"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/leased"
	"github.com/pglatch/pglatch/once/postgres"
)

// Two schedulers, of which one runs the job of this hour.
func Example() {
	store := leased.New(leasetest.NewStore()) // in programs a lock server, or once/postgres
	ran := make(chan string, 2)
	for range 2 {
		runner, err := once.New(once.Config{Store: store, Window: 2 * time.Hour})
		if err != nil {
			fmt.Println(err)
			return
		}
		locker := gocronlock.NewLocker(runner, slog.Default())
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		if err != nil {
			fmt.Println(err)
			return
		}
		locker.Bind(scheduler)
		_, err = scheduler.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(func() { ran <- "report" }), gocron.WithName("report"),
			gocron.WithStartAt(gocron.WithStartImmediately()), gocron.WithEventListeners(gocron.AfterJobRunsWithError(locker.Failed)))
		if err != nil {
			fmt.Println(err)
			return
		}
		scheduler.Start()
		defer func() { _ = scheduler.Shutdown() }()
	}
	fmt.Println(<-ran)
	// Output: report
}

// A node of a program: the job's context ends when its claim is lost.
func ExampleLocker_Context() {
	node := func(ctx context.Context, pool *pgxpool.Pool) (gocron.Scheduler, error) {
		store, err := postgres.New(postgres.Config{Pool: pool, CreateTable: true})
		if err != nil {
			return nil, err
		}
		runner, err := once.New(once.Config{Store: store, Wait: 20 * time.Second})
		if err != nil {
			return nil, err
		}
		locker := gocronlock.NewLocker(runner, slog.Default())
		scheduler, err := gocron.NewScheduler(gocron.WithLocation(time.UTC), gocron.WithDistributedLocker(locker))
		if err != nil {
			return nil, err
		}
		locker.Bind(scheduler)
		closeTheDay := func(ctx context.Context) error {
			if run, ok := locker.Context("close-the-day"); ok {
				ctx = run
			}
			claim, _ := once.ClaimOf(ctx)
			_, err := pool.Exec(ctx, "UPDATE day SET closed = true, tick = $1, token = $2 WHERE (tick, token) <= ($1, $2)", claim.Tick, int64(claim.Token))
			return err
		}
		_, err = scheduler.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(closeTheDay), gocron.WithName("close-the-day"),
			gocron.WithEventListeners(gocron.AfterJobRunsWithError(locker.Failed)))
		scheduler.Start()
		return scheduler, err
	}
	_ = node
}
