package agents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/advisory"
)

// A workFunc works on an agent and its newest command, which is nil if there is none. Both were read under the agent's
// lock. It returns the turns that it wrote, to be summarised after the commit.
type workFunc func(ctx context.Context, tx pgx.Tx, agent *Agent, newest *Command) (turns []int64, err error)

// A worker visits all agents again and again. All replicas run the same workers. The agent's
// lock makes workers and hooks take turns.
type worker struct {
	*App
	name string
	work workFunc
	find func(ctx context.Context) ([]int32, error) // lists agents that may need work
}

func (a *App) worker(name string, work workFunc) *worker {
	return &worker{a, name, work, func(ctx context.Context) ([]int32, error) { return a.ids(ctx, active) }}
}

// A tally counts the agents of a cycle.
type tally struct{ done, skipped int }

// cycle visits the agents once. It locks, reads, works on, commits and unlocks each agent before the next. It skips an
// agent that is locked elsewhere until the next cycle. An error with one agent does not affect the others.
func (w *worker) cycle(ctx context.Context) (t tally, err error) {
	ids, err := w.find(ctx)
	if err != nil {
		return t, err
	}
	var failed []error
	for _, id := range ids {
		var turns []int64
		ran, err := w.locker.With(advisory.Options{Label: w.name}).DoOrSkip(ctx, Agents.ID(int64(id)), func(ctx context.Context) error {
			return inTx(ctx, w.pool, func(tx pgx.Tx) error { // commits before the lock is released
				agent, newest, err := readAgent(ctx, tx, id, newestCommand)
				if err != nil {
					return err
				}
				turns, err = w.work(ctx, tx, agent, newest)
				return err
			})
		})
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("agent %d: %w", id, err))
		case ran:
			t.done++
			w.summarise(turns)
		default:
			t.skipped++
			w.config.Logger.DebugContext(ctx, "busy_agent_skipped", slog.String("worker", w.name), slog.Int("agent_id", int(id)))
		}
	}
	return t, errors.Join(failed...)
}

func (w *worker) run(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := w.cycle(ctx); err != nil && ctx.Err() == nil {
			w.config.Logger.WarnContext(ctx, "worker_cycle_failed", slog.String("worker", w.name), slog.Any("error", err))
		}
	}
}

// reaper ends agents that showed no sign of life for too long.
func (a *App) reaper() *worker {
	const silent = active + ` AND last_seen_at < now() - $1::interval`
	w := a.worker("reaper", func(ctx context.Context, tx pgx.Tx, agent *Agent, newest *Command) ([]int64, error) {
		var still bool // a hook may have arrived since the agent was found
		err := tx.QueryRow(ctx, `SELECT `+silent+` FROM hooks.agents WHERE id = $2`, a.config.AgentTimeout, agent.ID).Scan(&still)
		if err != nil || !still {
			return nil, err
		}
		return nil, endAgent(ctx, tx, agent, newest)
	})
	w.find = func(ctx context.Context) ([]int32, error) { return a.ids(ctx, silent, a.config.AgentTimeout) }
	return w
}

// reconciler makes turns of the transcript lines that came without a hook.
func (a *App) reconciler() *worker { return a.worker("transcript_reconciler", a.catchUp) }

// contextPoller records how full an agent's memory is.
func (a *App) contextPoller() *worker {
	const contextWindow = 800_000 // bytes of transcript that an agent can remember, roughly
	return a.worker("context_poller", func(ctx context.Context, tx pgx.Tx, agent *Agent, _ *Command) ([]int64, error) {
		lines, err := a.transcript(agent)
		if err != nil {
			return nil, err
		}
		_, err = tx.Exec(ctx, `UPDATE hooks.agents SET context_percent = $2, context_checked_at = clock_timestamp() WHERE id = $1`,
			agent.ID, min(100, 100*len(strings.Join(lines, ""))/contextWindow))
		return nil, err
	})
}

// watchdog ends agents whose process is gone, because a killed agent sends no session-end.
// It assumes that replicas and agents run on one host.
func (a *App) watchdog() *worker {
	return a.worker("watchdog", func(ctx context.Context, tx pgx.Tx, agent *Agent, newest *Command) ([]int64, error) {
		gone := agent.PID > 0 && errors.Is(syscall.Kill(agent.PID, 0), syscall.ESRCH)
		if agent.EndedAt != nil || !gone {
			return nil, nil
		}
		return nil, endAgent(ctx, tx, agent, newest)
	})
}

// deferredStop completes a command whose agent stopped before its answer was in the
// transcript, and reports whether it did.
//
// It waits without the lock, so that other hooks can take it. Except for what never changes, everything read before the
// lock is therefore stale: session-end may have completed the command meanwhile.
//
// Nothing else repeats this work, so deferredStop tries again when the lock is busy or lost,
// until the stop is done or ctx ends. A deferred stop dies with its process. Then the reaper
// completes the command when the agent has been silent for AgentTimeout.
func (a *App) deferredStop(ctx context.Context, stopped *Agent, open *Command) (completed bool, err error) {
	for range a.config.StopTries {
		if err := pause(ctx, a.config.StopPause); err != nil {
			return false, err
		}
		answered, err := a.answered(stopped, open)
		if err != nil {
			return false, err
		}
		if answered {
			break
		}
	}
	for {
		var turns []int64
		err = a.locker.With(advisory.Options{Label: "deferred_stop"}).Do(ctx, Agents.ID(int64(stopped.ID)), func(ctx context.Context) error {
			return inTx(ctx, a.pool, func(tx pgx.Tx) error {
				agent, command, err := readAgent(ctx, tx, stopped.ID, open.ID)
				if completed = err == nil && command.open(); !completed {
					return err
				}
				turns, err = a.complete(ctx, tx, agent, command)
				return err
			})
		})
		if err == nil {
			a.summarise(turns)
			return completed, nil
		}
		if !contended(err) {
			return false, err
		}
		a.config.Logger.InfoContext(ctx, "deferred_stop_retried", slog.Int("agent_id", int(stopped.ID)), slog.Any("error", err))
		if err := pause(ctx, a.config.WorkerInterval); err != nil {
			return false, err
		}
	}
}

// contended reports whether an error is transient: the lock is busy or lost, the pool is
// exhausted, or the database is unavailable.
func contended(err error) bool {
	return errors.Is(err, advisory.ErrTimeout) || errors.Is(err, advisory.ErrPoolExhausted) ||
		errors.Is(err, advisory.ErrLost) || errors.Is(err, advisory.ErrUnavailable)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return context.Cause(ctx)
}

// summarise starts writing the summaries of committed turns, one after the other: each
// occupies a connection of the work pool during its model call.
func (a *App) summarise(turns []int64) {
	if len(turns) == 0 {
		return
	}
	a.later("summary", func(ctx context.Context) error {
		var failed []error
		for _, turn := range turns {
			_, _, err := a.summariseTurn(ctx, turn)
			failed = append(failed, err)
		}
		return errors.Join(failed...)
	})
}

// lockNotAvailable is SQLSTATE 55P03: NOWAIT fails with it instead of waiting.
const lockNotAvailable = "55P03"

// summariseTurn returns the turn's summary, and writes it if there is none. If another session is writing it or the
// rate limit is reached, ok is false and the model is not called. The row is locked during the call: model calls are
// expensive, and nothing else wants to change a turn.
func (a *App) summariseTurn(ctx context.Context, turn int64) (summary string, ok bool, err error) {
	err = inTx(ctx, a.pool, func(tx pgx.Tx) error {
		var text string
		var existing *string
		err := tx.QueryRow(ctx, `SELECT text, summary FROM hooks.turns WHERE id = $1 FOR UPDATE NOWAIT`, turn).Scan(&text, &existing)
		if err != nil {
			return err
		}
		if existing != nil {
			summary, ok = *existing, true
			return nil
		}
		if summary, ok = a.summaries.find(text); !ok {
			if !a.calls.Allow() {
				return nil
			}
			if summary, err = a.config.Model(ctx, text); err != nil {
				return err
			}
			a.summaries.add(text, summary)
			ok = true
		}
		_, err = tx.Exec(ctx, `UPDATE hooks.turns SET summary = $2 WHERE id = $1`, turn, summary)
		return err
	})
	if e, is := errors.AsType[*pgconn.PgError](err); is && e.Code == lockNotAvailable {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("agents: summarise turn %d: %w", turn, err)
	}
	return summary, ok, nil
}

// firstWords is a Model that costs nothing: the summary is the first words.
func firstWords(_ context.Context, text string) (string, error) {
	words := strings.Fields(text)
	return strings.Join(words[:min(len(words), 8)], " "), nil
}
