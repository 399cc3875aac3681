package agents

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

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

// readCommand returns the current state of a command.
func readCommand(ctx context.Context, tx pgx.Tx, id int64) (*Command, error) {
	rows, _ := tx.Query(ctx, `SELECT `+commandColumns+` FROM hooks.commands WHERE id = $1`, id)
	return pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Command])
}

// newestCommand returns the agent's newest command, or nil if it has none.
func newestCommand(ctx context.Context, tx pgx.Tx, agentID int32) (*Command, error) {
	rows, _ := tx.Query(ctx, `SELECT `+commandColumns+` FROM hooks.commands WHERE agent_id = $1 ORDER BY id DESC LIMIT 1`, agentID)
	c, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Command])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return c, err
}

// newCommand opens a command of the agent.
func newCommand(ctx context.Context, tx pgx.Tx, a *Agent) (*Command, error) {
	rows, _ := tx.Query(ctx, `INSERT INTO hooks.commands (agent_id, transcript_from) VALUES ($1, $2) RETURNING `+commandColumns,
		a.ID, a.TranscriptLines)
	return pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Command])
}

func setState(ctx context.Context, tx pgx.Tx, c *Command, state string) error {
	c.State = state
	_, err := tx.Exec(ctx, `UPDATE hooks.commands SET state = $2::text, completed_at = CASE WHEN $2 = 'complete' THEN now() END
		WHERE id = $1`, c.ID, state)
	return err
}
