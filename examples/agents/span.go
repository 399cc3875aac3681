package agents

import (
	"context"
	"time"
)

// beginSpan records, for the demo, that a hook begins, and then waits as long as the hook asks.
// It commits separately: the lock does not end with a transaction.
func (a *App) beginSpan(ctx context.Context, h *Hook) (id int64, err error) {
	if !a.config.Demo {
		return 0, nil
	}
	err = a.pool.QueryRow(ctx, `INSERT INTO hooks.spans (agent_id, hook, replica) VALUES ($1, $2, $3) RETURNING id`,
		h.agentID, h.name, a.config.Replica).Scan(&id)
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(time.Duration(h.WorkMS) * time.Millisecond):
		return id, nil
	}
}

// endSpan records, for the demo, that a hook ends, still under the lock.
func (a *App) endSpan(ctx context.Context, id int64) error {
	if !a.config.Demo {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_, err := a.pool.Exec(ctx, `UPDATE hooks.spans SET ended_at = clock_timestamp() WHERE id = $1`, id)
	return err
}
