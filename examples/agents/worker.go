package agents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/advisory"
)

// A workFunc works on an agent and its newest command, which is nil if there is none. Both
// were read under the agent's lock. It returns the turns that it wrote, to be summarised after
// the commit.
type workFunc func(ctx context.Context, tx pgx.Tx, agent *Agent, newest *Command) (turns []int64, err error)

// A Worker visits all agents again and again. All replicas run the same workers. The agent's
// lock makes workers and hooks take turns.
type Worker struct {
	Name string

	pool   *pgxpool.Pool
	locker *advisory.Locker
	logger *slog.Logger
	// find lists agents that may need work; work does it.
	find      func(ctx context.Context, pool *pgxpool.Pool) ([]int32, error)
	work      workFunc
	summarise func(turns []int64)
}

func (a *App) worker(name string, work workFunc) *Worker {
	return &Worker{
		Name: name, pool: a.pool, logger: a.config.Logger, find: activeAgents, work: work,
		locker: a.locker.With(advisory.Options{Label: name}), summarise: a.summarise,
	}
}

// A Tally counts the agents of a cycle.
type Tally struct{ Done, Skipped int }

// Cycle visits the agents once. It locks, reads, works on, commits and unlocks each agent
// before the next. It skips an agent that is locked elsewhere until the next cycle. An error
// with one agent does not affect the others.
func (w *Worker) Cycle(ctx context.Context) (t Tally, err error) {
	ids, err := w.find(ctx, w.pool)
	if err != nil {
		return t, fmt.Errorf("agents: %s: %w", w.Name, err)
	}
	var failed []error
	for _, id := range ids {
		var turns []int64
		ran, err := w.locker.DoOrSkip(ctx, Agents.ID(int64(id)), func(ctx context.Context) error {
			return inTx(ctx, w.pool, func(tx pgx.Tx) error { // commits before the lock is released
				agent, newest, err := readAgent(ctx, tx, id)
				if err != nil {
					return err
				}
				turns, err = w.work(ctx, tx, agent, newest)
				return err
			})
		})
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("agents: %s: agent %d: %w", w.Name, id, err))
		case ran:
			t.Done++
			w.summarise(turns)
		default:
			t.Skipped++
			w.logger.DebugContext(ctx, "busy_agent_skipped", slog.String("worker", w.Name), slog.Int("agent_id", int(id)))
		}
	}
	return t, errors.Join(failed...)
}

// run repeats Cycle until ctx ends.
func (w *Worker) run(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := w.Cycle(ctx); err != nil && ctx.Err() == nil {
			w.logger.WarnContext(ctx, "worker_cycle_failed", slog.String("worker", w.Name), slog.Any("error", err))
		}
	}
}
