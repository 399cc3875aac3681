package agents

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// An Injector sends an agent the skills of its persona, once in its life.
type Injector struct {
	pool *pgxpool.Pool
	send func(ctx context.Context, agent *Agent) error
}

// NewInjector returns an Injector that sends by send.
func NewInjector(pool *pgxpool.Pool, send func(context.Context, *Agent) error) *Injector {
	return &Injector{pool: pool, send: send}
}

// Inject sends the skills unless they were sent before, and reports whether it did.
// Callers hold the agent's lock; in case one forgets, or read the agent before it
// waited for the lock, what counts is the row as it is now, locked until the commit.
func (i *Injector) Inject(ctx context.Context, agent *Agent) (sent bool, err error) {
	err = inTx(ctx, i.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `SELECT prompt_injected_at FROM hooks.agents WHERE id = $1 FOR UPDATE`, agent.ID).Scan(&agent.PromptInjectedAt)
		if err != nil || agent.PromptInjectedAt != nil {
			return err
		}
		if err := i.send(ctx, agent); err != nil {
			return err
		}
		sent = true
		return tx.QueryRow(ctx, `UPDATE hooks.agents SET prompt_injected_at = now() WHERE id = $1 RETURNING prompt_injected_at`,
			agent.ID).Scan(&agent.PromptInjectedAt)
	})
	if err != nil {
		return false, fmt.Errorf("agents: inject skills into agent %d: %w", agent.ID, err)
	}
	return sent, nil
}
