package agents

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// A Hook is a call by an agent, as in the body of the request, together with the state read
// for it. Which fields have a meaning depends on the hook.
type Hook struct {
	SessionID string `json:"session_id"`
	PID       int    `json:"pid"`
	Prompt    string `json:"prompt"`
	Message   string `json:"message"`
	ToolName  string `json:"tool_name"`
	WorkMS    int    `json:"work_ms"` // how long the hook takes; for the demo

	name    string
	agentID int32
	// Read under the agent's lock:
	agent   *Agent
	command *Command // the newest; nil = none
	skills  string   // for the agent; "" = it has received them, or there are none

	committed []func(ctx context.Context) error // run under the lock after the commit
}

// afterCommit registers fn to run under the lock once the hook's changes are committed.
func (h *Hook) afterCommit(fn func(ctx context.Context) error) { h.committed = append(h.committed, fn) }

// A hookFunc makes the changes of a hook. It runs under the agent's lock.
type hookFunc func(ctx context.Context, tx pgx.Tx, h *Hook) error

// hooks are the hooks that change an agent.
func (a *App) hooks() map[string]hookFunc {
	return map[string]hookFunc{
		"session-start":      sessionStart,
		"session-end":        sessionEnd,
		"user-prompt-submit": userPromptSubmit,
		"stop":               a.stop,
		"notification":       awaitInput,
		"permission-request": awaitInput,
		"pre-tool-use":       a.useTool,
		"post-tool-use":      a.useTool,
	}
}

func sessionStart(ctx context.Context, tx pgx.Tx, h *Hook) error {
	return startAgent(ctx, tx, h.agent, h.PID)
}

func sessionEnd(ctx context.Context, tx pgx.Tx, h *Hook) error {
	return endAgent(ctx, tx, h.agent, h.command)
}

// userPromptSubmit opens a command, or continues the open one.
func userPromptSubmit(ctx context.Context, tx pgx.Tx, h *Hook) (err error) {
	if h.command.open() {
		err = setState(ctx, tx, h.command, Processing)
	} else {
		h.command, err = newCommand(ctx, tx, h.agent)
	}
	if err != nil {
		return err
	}
	_, err = addTurn(ctx, tx, h.command, "user", h.Prompt)
	return err
}

// stop completes the command. If the answer is not in the agent's transcript yet, that happens later.
func (a *App) stop(ctx context.Context, tx pgx.Tx, h *Hook) error {
	if !h.command.open() {
		return nil
	}
	lines, err := a.transcripts.lines(h.agent)
	if err != nil {
		return err
	}
	if !a.transcripts.answered(h.command, lines) {
		h.afterCommit(func(context.Context) error {
			a.later("deferred_stop", func(ctx context.Context) error {
				_, err := a.deferredStop(ctx, h.agentID, h.command.ID)
				return err
			})
			return nil
		})
		return nil
	}
	turns, err := a.completeCommand(ctx, tx, h.agent, h.command)
	h.afterCommit(func(context.Context) error {
		a.summarise(turns)
		return nil
	})
	return err
}

// awaitInput records that the agent is asking its user something.
func awaitInput(ctx context.Context, tx pgx.Tx, h *Hook) error {
	if !h.command.open() {
		return nil
	}
	if _, err := addTurn(ctx, tx, h.command, "agent", h.Message); err != nil {
		return err
	}
	return setState(ctx, tx, h.command, AwaitingInput)
}

// useTool records that the agent works, and captures its output so far. Two concurrent hooks
// capture each line once, because the agent's lock lets them count the lines one after the
// other.
func (a *App) useTool(ctx context.Context, tx pgx.Tx, h *Hook) error {
	if !h.command.open() {
		return nil
	}
	lines, err := a.transcripts.lines(h.agent)
	if err != nil {
		return err
	}
	turns, err := catchUp(ctx, tx, h.agent, h.command, lines)
	if err != nil {
		return err
	}
	h.afterCommit(func(context.Context) error {
		a.summarise(turns)
		return nil
	})
	return setState(ctx, tx, h.command, Processing)
}
