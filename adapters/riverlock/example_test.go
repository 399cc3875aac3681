package riverlock_test

import (
	"context"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/pglatch/pglatch/adapters/riverlock"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

type SyncAgentArgs struct {
	Agent int64 `json:"agent"`
}

func (SyncAgentArgs) Kind() string { return "sync_agent" }

func Example() {
	const dsn = "postgres://localhost/app"
	agents := namespace.Must(1, "agent")
	ctx := context.Background()

	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	locker, err := advisory.Open(ctx, advisory.Config{DSN: dsn, LocksPerConn: 100})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	locks, err := riverlock.New(locker, pool, riverlock.Config{
		Key: riverlock.Args(func(a SyncAgentArgs) namespace.Key { return agents.ID(a.Agent) }),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[SyncAgentArgs]) error {
		return ctx.Err() // nobody else works on this agent until ctx ends
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:     map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
		Workers:    workers,
		Middleware: []rivertype.Middleware{locks},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Start(ctx); err != nil {
		log.Fatal(err)
	}
	<-client.Stopped()
}
