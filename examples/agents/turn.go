package agents

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// addTurn records what the user or the agent said and returns the turn's id.
func addTurn(ctx context.Context, tx pgx.Tx, c *Command, actor, text string) (id int64, err error) {
	err = tx.QueryRow(ctx, `INSERT INTO hooks.turns (command_id, actor, text) VALUES ($1, $2, $3) RETURNING id`,
		c.ID, actor, text).Scan(&id)
	return id, err
}

// catchUp makes turns of the new lines of the agent's transcript and returns their ids.
func catchUp(ctx context.Context, tx pgx.Tx, a *Agent, c *Command, lines []string) (turns []int64, err error) {
	if c == nil || len(lines) <= a.TranscriptLines {
		return nil, nil
	}
	for _, line := range lines[a.TranscriptLines:] {
		id, err := addTurn(ctx, tx, c, "agent", line)
		if err != nil {
			return nil, err
		}
		turns = append(turns, id)
	}
	a.TranscriptLines = len(lines)
	_, err = tx.Exec(ctx, `UPDATE hooks.agents SET transcript_lines = $2 WHERE id = $1`, a.ID, a.TranscriptLines)
	return turns, err
}
