package cronlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/robfig/cron/v3"

	"github.com/pglatch/pglatch/adapters/cronlock"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/leased"
	"github.com/pglatch/pglatch/once/postgres"
)

// Two nodes fire for one tick.
func ExampleOnce() {
	store := leased.New(leasetest.NewStore()) // in programs a lock server, or once/postgres
	hourly, err := cron.ParseStandard("0 * * * *")
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Now()
	for _, node := range []string{"a", "b"} {
		runner, err := once.New(once.Config{Store: store, Node: node, Window: 2 * time.Hour})
		if err != nil {
			fmt.Println(err)
			return
		}
		wrapper, err := cronlock.Once(cronlock.Config{
			Runner: runner, Job: "report", Schedule: hourly, Logger: cron.DiscardLogger,
			Now: func() time.Time { return now }, // for the example: it fires at the same moment
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		job := cron.NewChain(wrapper).Then(cronlock.Func(func(context.Context) error {
			fmt.Println("node", node, "runs the report")
			return nil
		}))
		job.Run() // as cron does, after nightly.Schedule(hourly, job)
	}
	// Output: node a runs the report
}

// A node of a program. After a start it runs the last tick that was missed.
func ExampleFunc() {
	node := func(ctx context.Context, pool *pgxpool.Pool, closeTheDay cronlock.Func) (*cron.Cron, error) {
		store, err := postgres.New(postgres.Config{Pool: pool, CreateTable: true})
		if err != nil {
			return nil, err
		}
		runner, err := once.New(once.Config{Store: store, Window: 12 * time.Hour, Wait: time.Minute})
		if err != nil {
			return nil, err
		}
		schedule, err := cron.ParseStandard("CRON_TZ=UTC 0 3 * * *")
		if err != nil {
			return nil, err
		}
		wrapper, err := cronlock.Once(cronlock.Config{Runner: runner, Job: "close-the-day", Schedule: schedule, Context: ctx})
		if err != nil {
			return nil, err
		}
		introduced := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		missed, err := runner.Missed(ctx, "close-the-day", introduced, schedule.Next)
		if err != nil {
			return nil, err
		}
		if n := len(missed); n > 0 {
			if _, err := runner.Do(ctx, "close-the-day", missed[n-1], closeTheDay); err != nil {
				return nil, err
			}
		}
		nightly := cron.New(cron.WithLocation(time.UTC))
		nightly.Schedule(schedule, cron.NewChain(wrapper).Then(closeTheDay))
		nightly.Start()
		return nightly, nil
	}
	_ = node
}
