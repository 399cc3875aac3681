package agents

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// contextWindow is roughly how many bytes of transcript an agent can remember.
const contextWindow = 800_000

// contextPoller records how full an agent's memory is.
func (a *App) contextPoller() *Worker {
	return a.worker("context_poller", func(ctx context.Context, tx pgx.Tx, agent *Agent, _ *Command) ([]int64, error) {
		lines, err := a.transcripts.lines(agent)
		if err != nil {
			return nil, err
		}
		size := 0
		for _, line := range lines {
			size += len(line)
		}
		_, err = tx.Exec(ctx, `UPDATE hooks.agents SET context_percent = $2, context_checked_at = clock_timestamp() WHERE id = $1`,
			agent.ID, min(100, 100*size/contextWindow))
		return nil, err
	})
}
