package agents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/advisory"
)

// deferredStop completes a command whose agent stopped before its answer was in the
// transcript, and reports whether it did.
//
// It waits without the lock, so that other hooks can take it. Everything read before the
// lock is therefore stale: session-end may have completed the command meanwhile.
//
// Nothing else repeats this work, so deferredStop tries again when the lock is busy or lost,
// until the stop is done or ctx ends. A deferred stop dies with its process. Then the reaper
// completes the command when the agent has been silent for AgentTimeout.
func (a *App) deferredStop(ctx context.Context, agentID int32, commandID int64) (completed bool, err error) {
	if err := a.awaitAnswer(ctx, agentID, commandID); err != nil {
		return false, err
	}
	for {
		completed, err = a.tryDeferredStop(ctx, agentID, commandID)
		if !contended(err) {
			return completed, err
		}
		a.config.Logger.InfoContext(ctx, "deferred_stop_retried", slog.Int("agent_id", int(agentID)), slog.Any("error", err))
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(a.config.WorkerInterval):
		}
	}
}

// contended reports whether an error is transient: the lock is busy or lost, the pool is
// exhausted, or the database is unavailable.
func contended(err error) bool {
	for _, passing := range []error{advisory.ErrTimeout, advisory.ErrPoolExhausted, advisory.ErrLost, advisory.ErrUnavailable} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}

// tryDeferredStop completes the command under the agent's lock.
func (a *App) tryDeferredStop(ctx context.Context, agentID int32, commandID int64) (completed bool, err error) {
	var turns []int64
	locker := a.locker.With(advisory.Options{Label: "deferred_stop"})
	err = locker.Do(ctx, Agents.ID(int64(agentID)), func(ctx context.Context) error {
		return inTx(ctx, a.pool, func(tx pgx.Tx) error {
			agent, command, err := readBoth(ctx, tx, agentID, commandID)
			if err != nil || !command.open() {
				return err
			}
			completed = true
			turns, err = a.completeCommand(ctx, tx, agent, command)
			return err
		})
	})
	if err != nil {
		return false, fmt.Errorf("agents: deferred stop of agent %d: %w", agentID, err)
	}
	a.summarise(turns)
	return completed, nil
}

// awaitAnswer checks for the command's answer until it is there or the tries are used up.
func (a *App) awaitAnswer(ctx context.Context, agentID int32, commandID int64) error {
	for range a.config.StopTries {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(a.config.StopPause):
		}
		var answered bool
		err := inTx(ctx, a.pool, func(tx pgx.Tx) error {
			agent, command, err := readBoth(ctx, tx, agentID, commandID)
			if err != nil {
				return err
			}
			lines, err := a.transcripts.lines(agent)
			answered = a.transcripts.answered(command, lines)
			return err
		})
		if answered || err != nil {
			return err
		}
	}
	return nil
}

// completeCommand records the agent's answer, completes the command, and returns the new
// turns, to be summarised after the commit.
func (a *App) completeCommand(ctx context.Context, tx pgx.Tx, agent *Agent, command *Command) (turns []int64, err error) {
	lines, err := a.transcripts.lines(agent)
	if err != nil {
		return nil, err
	}
	if turns, err = catchUp(ctx, tx, agent, command, lines); err != nil {
		return nil, err
	}
	return turns, setState(ctx, tx, command, Complete)
}

func readBoth(ctx context.Context, tx pgx.Tx, agentID int32, commandID int64) (*Agent, *Command, error) {
	agent, _, err := readAgent(ctx, tx, agentID)
	if err != nil {
		return nil, nil, err
	}
	command, err := readCommand(ctx, tx, commandID)
	return agent, command, err
}
