package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/namespace"
)

// A Hook is a call by an agent, as in the body of the request, together with the state read
// for it. Which fields have a meaning depends on the hook.
type Hook struct {
	SessionID string `json:"session_id"`
	PID       int    `json:"pid"`
	Prompt    string `json:"prompt"`
	Message   string `json:"message"`

	agentID int32
	// Read under the agent's lock:
	agent   *Agent
	command *Command // the newest; nil = none
	// Left for after the commit:
	turns    []int64 // to summarise
	deferred bool    // the stop is
}

// A HookReply is the answer to a hook.
type HookReply struct {
	AgentID      int32  `json:"agent_id"`
	Replica      string `json:"replica"`
	CommandID    int64  `json:"command_id,omitempty"`
	CommandState string `json:"command_state,omitempty"`
	Skills       string `json:"skills,omitempty"` // for the agent to read; sent once
}

const (
	maxBody = 1 << 20 // bytes of a request body
	hookKey = "hook"  // key of the *Hook in an echo.Context
)

var validSession = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// correlate finds the agent of a hook by the session in the body, and returns the key to
// lock. It changes nothing, except that session-start registers a new session. Before any
// lock, a hook without a session gets 400 and one with an unknown session gets 404.
func (a *App) correlate(c echo.Context, name string) (namespace.Key, error) {
	body, err := middleware.BufferBody(c.Request(), maxBody)
	if err != nil {
		return namespace.Key{}, err
	}
	h, ctx := &Hook{}, c.Request().Context()
	if json.Unmarshal(body, h) != nil || !validSession.MatchString(h.SessionID) {
		return namespace.Key{}, refuse(http.StatusBadRequest, "send JSON with a session_id of 1 to 128 letters, digits, dots, dashes and underscores")
	}
	if name == "session-start" { // an existing agent is not changed: its lock is not held here
		if _, err := a.pool.Exec(ctx, `INSERT INTO hooks.agents (session_id) VALUES ($1) ON CONFLICT DO NOTHING`, h.SessionID); err != nil {
			return namespace.Key{}, fmt.Errorf("agents: register session: %w", err)
		}
	}
	if h.agentID, err = a.agentOf(ctx, h.SessionID); err != nil {
		return namespace.Key{}, err
	}
	c.Set(hookKey, h)
	return Agents.ID(int64(h.agentID)), nil
}

// serveHook answers a hook, under the agent's lock.
func (a *App) serveHook(name string, hook hookFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h, reply := c.Get(hookKey).(*Hook), HookReply{Replica: a.config.Replica}
		ctx := c.Request().Context() // of the agent's lock: once the lock is lost, nothing more is committed
		work := func() (err error) {
			reply.Skills, err = a.process(ctx, name, h, hook)
			return err
		}
		run := work
		if a.config.Around != nil {
			run = func() error { return a.config.Around(ctx, name, h, h.agentID, work) }
		}
		if err := run(); err != nil {
			return fmt.Errorf("agents: %s of agent %d: %w", name, h.agentID, err)
		}
		a.broadcaster.publish(event{h.agentID, name})
		if reply.AgentID = h.agentID; h.command != nil {
			reply.CommandID, reply.CommandState = h.command.ID, h.command.State
		}
		return c.JSON(http.StatusOK, reply)
	}
}

// process does the work of a hook and returns skills for the agent.
func (a *App) process(ctx context.Context, name string, h *Hook, hook hookFunc) (skills string, err error) {
	err = inTx(ctx, a.pool, func(tx pgx.Tx) (err error) {
		if h.agent, h.command, err = readAgent(ctx, tx, h.agentID, newestCommand); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE hooks.agents SET last_seen_at = now() WHERE id = $1`, h.agentID); err != nil {
			return err
		}
		return hook(ctx, tx, h)
	})
	if err != nil {
		return "", err
	}
	a.summarise(h.turns)
	if h.deferred {
		a.later("deferred_stop", func(ctx context.Context) error {
			_, err := a.deferredStop(ctx, h.agent, h.command)
			return err
		})
	}
	// The hook is committed whether or not this succeeds. After a failure the next hook tries again.
	if skills, err = a.inject(ctx, h.agent); err != nil {
		a.config.Logger.WarnContext(ctx, "skills_not_injected", slog.String("hook", name), slog.Any("error", err))
	}
	return skills, nil
}

// A hookFunc makes the changes of a hook. It runs under the agent's lock.
type hookFunc func(ctx context.Context, tx pgx.Tx, h *Hook) error

// hooks are the hooks that change an agent.
func (a *App) hooks() map[string]hookFunc {
	return map[string]hookFunc{
		"session-start":      sessionStart,
		"session-end":        func(ctx context.Context, tx pgx.Tx, h *Hook) error { return endAgent(ctx, tx, h.agent, h.command) },
		"user-prompt-submit": userPromptSubmit,
		"stop":               a.stop,
		"notification":       awaitInput,
		"permission-request": awaitInput,
		"pre-tool-use":       a.useTool,
		"post-tool-use":      a.useTool,
	}
}

// sessionStart marks an agent as running, also a session that is resumed after its end.
func sessionStart(ctx context.Context, tx pgx.Tx, h *Hook) error {
	_, err := tx.Exec(ctx, `UPDATE hooks.agents SET ended_at = NULL, pid = $2 WHERE id = $1`, h.agentID, h.PID)
	h.agent.EndedAt = nil
	return err
}

// userPromptSubmit opens a command, or continues the open one.
func userPromptSubmit(ctx context.Context, tx pgx.Tx, h *Hook) (err error) {
	if h.command.open() {
		err = setState(ctx, tx, h.command, Processing)
	} else {
		h.command, err = newCommand(ctx, tx, h.agent)
	}
	if err == nil {
		err = addTurn(ctx, tx, h.command, "user", h.Prompt)
	}
	return err
}

// stop completes the command. If the answer is not in the agent's transcript yet, that happens later.
func (a *App) stop(ctx context.Context, tx pgx.Tx, h *Hook) error {
	if !h.command.open() {
		return nil
	}
	answered, err := a.answered(h.agent, h.command)
	if h.deferred = !answered; h.deferred || err != nil {
		return err
	}
	h.turns, err = a.complete(ctx, tx, h.agent, h.command)
	return err
}

// complete records the agent's answer, completes the command, and returns the new turns.
func (a *App) complete(ctx context.Context, tx pgx.Tx, agent *Agent, c *Command) (turns []int64, err error) {
	if turns, err = a.catchUp(ctx, tx, agent, c); err != nil {
		return nil, err
	}
	return turns, setState(ctx, tx, c, Complete)
}

// awaitInput records that the agent is asking its user something.
func awaitInput(ctx context.Context, tx pgx.Tx, h *Hook) error {
	if !h.command.open() {
		return nil
	}
	if err := addTurn(ctx, tx, h.command, "agent", h.Message); err != nil {
		return err
	}
	return setState(ctx, tx, h.command, AwaitingInput)
}

// useTool records that the agent works, and captures its output so far. Two concurrent hooks capture each line once,
// because the agent's lock lets them count the lines one after the other.
func (a *App) useTool(ctx context.Context, tx pgx.Tx, h *Hook) (err error) {
	if !h.command.open() {
		return nil
	}
	if h.turns, err = a.catchUp(ctx, tx, h.agent, h.command); err != nil {
		return err
	}
	return setState(ctx, tx, h.command, Processing)
}

// inject returns the skills of an agent's persona, once in its life, and records that it has them. It returns "" if the
// agent received them before or has ended, or if there are none. Callers hold the agent's lock. A caller may have
// forgotten the lock, or have read the agent before it waited for the lock. So the current row counts, locked until the
// commit.
//
// Skills are given at most once: an agent that does not receive the answer does without them.
func (a *App) inject(ctx context.Context, agent *Agent) (skills string, err error) {
	if a.config.Skills == nil {
		return "", nil
	}
	err = inTx(ctx, a.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `SELECT prompt_injected_at, ended_at FROM hooks.agents WHERE id = $1 FOR UPDATE`, agent.ID).
			Scan(&agent.PromptInjectedAt, &agent.EndedAt)
		if err != nil || agent.PromptInjectedAt != nil || agent.EndedAt != nil {
			return err
		}
		if skills, err = a.config.Skills(ctx, agent); err != nil || skills == "" {
			return err
		}
		return tx.QueryRow(ctx, `UPDATE hooks.agents SET prompt_injected_at = now() WHERE id = $1 RETURNING prompt_injected_at`,
			agent.ID).Scan(&agent.PromptInjectedAt)
	})
	if err != nil {
		return "", err
	}
	return skills, nil
}
