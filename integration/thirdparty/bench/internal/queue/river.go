package queue

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/pglatch/pglatch/adapters/riverlock"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

type riverConfig struct {
	completeTx bool // the end of a job is part of its transaction
	lock       bool // one job of an entity at a time
}

// A riverArgs is a job.
type riverArgs struct{ Message }

func (riverArgs) Kind() string { return "message" }

type riverQueue struct {
	site   *Site
	config riverConfig
	insert *river.Client[pgx.Tx]
}

func riverOf(c riverConfig) func(context.Context, *Site) (Queue, error) {
	return func(ctx context.Context, s *Site) (Queue, error) {
		driver := riverpgxv5.New(s.Pool)
		migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
		if err == nil {
			_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		}
		if err != nil {
			return nil, err
		}
		client, err := river.NewClient(driver, &river.Config{Logger: quiet})
		return &riverQueue{s, c, client}, err
	}
}

var quiet = slog.New(slog.DiscardHandler)

func (q *riverQueue) Close() {}

func (q *riverQueue) Fill(ctx context.Context, count, each int) error {
	return inBatches(count, each, func(messages []Message) error {
		var all []river.InsertManyParams
		for _, m := range messages {
			all = append(all, river.InsertManyParams{Args: riverArgs{m}})
		}
		_, err := q.insert.InsertManyFast(ctx, all)
		return err
	})
}

func (q *riverQueue) Send(ctx context.Context, tx pgx.Tx, m Message) error {
	_, err := q.insert.InsertTx(ctx, tx, riverArgs{m}, nil)
	return err
}

func (q *riverQueue) Serve(ctx context.Context, began func([]Message) (left func()), ended func([]Message)) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[riverArgs]) error {
		all := []Message{job.Args.Message}
		defer began(all)()
		err := pgx.BeginFunc(ctx, q.site.Pool, func(tx pgx.Tx) error {
			if err := store(ctx, tx, all); err != nil || !q.config.completeTx {
				return err
			}
			_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
			return err
		})
		if err == nil {
			ended(all)
		}
		return err
	}))
	config := &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: q.site.Workers, FetchCooldown: river.FetchCooldownMin, FetchPollInterval: time.Second}},
		Workers: workers, Logger: quiet, SoftStopTimeout: 0,
	}
	if q.config.lock {
		locker, err := advisory.Open(ctx, advisory.Config{DSN: q.site.DSN, LocksPerConn: 100})
		if err != nil {
			return err
		}
		defer locker.Close()
		locks, err := riverlock.New(locker, q.site.Pool, riverlock.Config{
			Key: riverlock.Args(func(a riverArgs) namespace.Key { return entities.ID(a.Entity) }),
		})
		if err != nil {
			return err
		}
		defer locks.Close()
		config.Middleware = []rivertype.Middleware{locks}
	}
	client, err := river.NewClient(riverpgxv5.New(q.site.Pool), config)
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return client.StopAndCancel(stop)
}
