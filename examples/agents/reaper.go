package agents

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const silent = `ended_at IS NULL AND last_seen_at < now() - $1::interval`

// reaper ends agents that showed no sign of life for too long.
func (a *App) reaper() *Worker {
	timeout := a.config.AgentTimeout
	w := a.worker("reaper", func(ctx context.Context, tx pgx.Tx, agent *Agent, newest *Command) ([]int64, error) {
		var still bool // a hook may have arrived since the agent was found
		err := tx.QueryRow(ctx, `SELECT `+silent+` FROM hooks.agents WHERE id = $2`, timeout, agent.ID).Scan(&still)
		if err != nil || !still {
			return nil, err
		}
		return nil, endAgent(ctx, tx, agent, newest)
	})
	w.find = func(ctx context.Context, pool *pgxpool.Pool) ([]int32, error) {
		rows, _ := pool.Query(ctx, `SELECT id FROM hooks.agents WHERE `+silent+` ORDER BY id`, timeout)
		return pgx.CollectRows(rows, pgx.RowTo[int32])
	}
	return w
}
