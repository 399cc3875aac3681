package scheduler

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

// A scheduleFunc is one run of a scheduler in a guarded transaction.
type scheduleFunc func(ctx context.Context, tx pgx.Tx) error

// A scheduler is a services.Service that repeats a schedule during one leadership.
type scheduler struct {
	name     string
	node     string
	schedule scheduleFunc
	interval time.Duration
	pool     *pgxpool.Pool
	log      *slog.Logger
	done     chan struct{}
}

func (n *Node) newScheduler(name string, schedule scheduleFunc) *scheduler {
	s := &scheduler{
		name: name, node: n.identity, schedule: schedule, interval: n.config.ScheduleInterval,
		pool: n.pool, log: n.config.Logger.With(slog.String("service", name)), done: make(chan struct{}),
	}
	s.log.Info("scheduler_built")
	return s
}

// Start starts the runs. They end with ctx, that is, with leadership.
func (s *scheduler) Start(ctx context.Context) error {
	go func() {
		defer close(s.done)
		every(ctx, s.interval, s.log, s.run)
	}()
	return nil
}

// Stop waits for the current run to end.
func (s *scheduler) Stop(ctx context.Context) error {
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run does one run and records it in the same transaction. It commits only if the
// term of ctx still leads.
func (s *scheduler) run(ctx context.Context) error {
	return postgres.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.schedule(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO code.runs (scheduler, node, term) VALUES ($1, $2, $3)`,
			s.name, s.node, int64(leader.TermOfContext(ctx).Uint64()))
		return err
	})
}

// every calls fn at once and then at intervals, until ctx ends. It logs an error and
// continues with the next call.
func every(ctx context.Context, interval time.Duration, log *slog.Logger, fn func(ctx context.Context) error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := fn(ctx); err != nil && ctx.Err() == nil {
			log.Warn("run_failed", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
