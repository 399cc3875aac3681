package agents

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// reconciler turns transcript lines that came without a hook into turns.
func (a *App) reconciler() *Worker {
	return a.worker("transcript_reconciler", func(ctx context.Context, tx pgx.Tx, agent *Agent, newest *Command) ([]int64, error) {
		lines, err := a.transcripts.lines(agent)
		if err != nil {
			return nil, err
		}
		return catchUp(ctx, tx, agent, newest, lines)
	})
}
