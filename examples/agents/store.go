package agents

import (
	"context"
	_ "embed" // for schema
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed schema.sql
var schema string

// inTx runs fn in a transaction and commits it, unless ctx has ended. With the context of a lock, a process that is
// stopped and resumes after the lock was lost changes nothing. The check comes right before the commit, so a stop
// between the two goes unnoticed. A write that must never come late needs a guarded transaction or a fencing token.
func inTx(ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return context.Cause(ctx)
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// An Agent is a row of hooks.agents, as read. It stays current only while the agent's lock is held.
type Agent struct {
	ID               int32
	SessionID        string
	PID              int
	EndedAt          *time.Time
	PromptInjectedAt *time.Time
	TranscriptLines  int
}

// The states of a Command.
const (
	Processing    = "processing"
	AwaitingInput = "awaiting_input"
	Complete      = "complete"
)

// A Command is a user's request to an agent: a row of hooks.commands, as read.
type Command struct {
	ID             int64
	AgentID        int32
	State          string
	TranscriptFrom int
}

func (c *Command) open() bool { return c != nil && c.State != Complete }

const commandColumns = `id, agent_id, state, transcript_from`

// newestCommand selects the newest command of an agent.
const newestCommand = 0

// readAgent reads the agent and one of its commands, which is nil if there is none. Without such an agent it returns
// pgx.ErrNoRows.
func readAgent(ctx context.Context, tx pgx.Tx, id int32, commandID int64) (*Agent, *Command, error) {
	rows, _ := tx.Query(ctx, `SELECT id, session_id, pid, ended_at, prompt_injected_at, transcript_lines FROM hooks.agents WHERE id = $1`, id)
	agent, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Agent])
	if err != nil {
		return nil, nil, err
	}
	rows, _ = tx.Query(ctx, `SELECT `+commandColumns+` FROM hooks.commands WHERE agent_id = $1 AND $2::bigint IN (0, id) ORDER BY id DESC LIMIT 1`, id, commandID)
	command, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Command])
	if errors.Is(err, pgx.ErrNoRows) {
		return agent, nil, nil
	}
	return agent, command, err
}

const active = `ended_at IS NULL`

// ids returns the ids of the agents that a condition selects.
func (a *App) ids(ctx context.Context, condition string, args ...any) ([]int32, error) {
	rows, _ := a.pool.Query(ctx, `SELECT id FROM hooks.agents WHERE `+condition+` ORDER BY id`, args...)
	return pgx.CollectRows(rows, pgx.RowTo[int32])
}

// agentOf returns the id of a session's agent, or the error that answers with 404.
func (a *App) agentOf(ctx context.Context, session string) (id int32, err error) {
	if id, ok := a.sessions.find(session); ok {
		return id, nil
	}
	err = a.pool.QueryRow(ctx, `SELECT id FROM hooks.agents WHERE session_id = $1`, session).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, refuse(http.StatusNotFound, "no agent has this session_id: session-start registers one")
	}
	if err != nil {
		return 0, fmt.Errorf("agents: correlate session: %w", err)
	}
	a.sessions.add(session, id)
	return id, nil
}

// endAgent marks an agent as ended and completes its newest command.
func endAgent(ctx context.Context, tx pgx.Tx, a *Agent, newest *Command) error {
	_, err := tx.Exec(ctx, `UPDATE hooks.agents SET ended_at = now() WHERE id = $1 AND ended_at IS NULL`, a.ID)
	if err == nil && newest.open() {
		err = setState(ctx, tx, newest, Complete)
	}
	return err
}

func newCommand(ctx context.Context, tx pgx.Tx, a *Agent) (*Command, error) {
	rows, _ := tx.Query(ctx, `INSERT INTO hooks.commands (agent_id, transcript_from) VALUES ($1, $2) RETURNING `+commandColumns, a.ID, a.TranscriptLines)
	return pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Command])
}

func setState(ctx context.Context, tx pgx.Tx, c *Command, state string) error {
	c.State = state
	_, err := tx.Exec(ctx, `UPDATE hooks.commands SET state = $2::text, completed_at = CASE WHEN $2 = 'complete' THEN now() END
		WHERE id = $1`, c.ID, state)
	return err
}

// addTurn records what the user or the agent said.
func addTurn(ctx context.Context, tx pgx.Tx, c *Command, actor, text string) error {
	_, err := tx.Exec(ctx, `INSERT INTO hooks.turns (command_id, actor, text) VALUES ($1, $2, $3)`, c.ID, actor, text)
	return err
}

// transcript returns the complete lines of an agent's transcript; none if there is no file yet.
func (a *App) transcript(agent *Agent) ([]string, error) {
	if a.config.Transcripts == nil {
		return nil, nil
	}
	text, err := fs.ReadFile(a.config.Transcripts, agent.SessionID+".txt")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	lines := strings.Split(string(text), "\n")
	return lines[:len(lines)-1], err // the last one is not complete: it has no newline yet
}

// answered reports whether the transcript has an answer to the command. Without transcripts it reports true.
func (a *App) answered(agent *Agent, c *Command) (bool, error) {
	lines, err := a.transcript(agent)
	return a.config.Transcripts == nil || len(lines) > c.TranscriptFrom, err
}

// catchUp makes turns of the new lines of the agent's transcript and returns their ids.
func (a *App) catchUp(ctx context.Context, tx pgx.Tx, agent *Agent, c *Command) (turns []int64, err error) {
	lines, err := a.transcript(agent)
	if err != nil || c == nil || len(lines) <= agent.TranscriptLines {
		return nil, err
	}
	rows, _ := tx.Query(ctx, `INSERT INTO hooks.turns (command_id, actor, text) SELECT $1, 'agent', line
		FROM unnest($2::text[]) WITH ORDINALITY AS l (line, n) ORDER BY n RETURNING id`, c.ID, lines[agent.TranscriptLines:])
	if turns, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil {
		return nil, err
	}
	agent.TranscriptLines = len(lines)
	_, err = tx.Exec(ctx, `UPDATE hooks.agents SET transcript_lines = $2 WHERE id = $1`, agent.ID, agent.TranscriptLines)
	return turns, err
}
