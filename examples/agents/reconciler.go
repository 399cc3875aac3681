package agents

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// reconciler makes turns of the transcript lines that came without a hook.
func (a *App) reconciler() *Worker {
	return a.worker("transcript_reconciler", func(ctx context.Context, tx pgx.Tx, agent *Agent, newest *Command) ([]int64, error) {
		lines, err := a.transcripts.lines(agent)
		if err != nil {
			return nil, err
		}
		return catchUp(ctx, tx, agent, newest, lines)
	})
}
