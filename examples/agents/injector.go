package agents

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// An Injector gives an agent the skills of its persona, once in its life.
type Injector struct {
	pool   *pgxpool.Pool
	skills func(ctx context.Context, agent *Agent) (string, error)
}

// NewInjector returns an Injector that gets its skills from the function skills.
func NewInjector(pool *pgxpool.Pool, skills func(context.Context, *Agent) (string, error)) *Injector {
	return &Injector{pool: pool, skills: skills}
}

// Inject returns the skills for an agent that has none yet, and records that it has them. It
// returns "" if the agent received them before or has ended, or if there are none. Callers
// hold the agent's lock. A caller may have forgotten the lock, or have read the agent before it
// waited for the lock. So the current row counts, locked until the commit.
//
// Skills are given at most once: an agent that does not receive the answer does without them.
func (i *Injector) Inject(ctx context.Context, agent *Agent) (skills string, err error) {
	err = inTx(ctx, i.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `SELECT prompt_injected_at, ended_at FROM hooks.agents WHERE id = $1 FOR UPDATE`, agent.ID).
			Scan(&agent.PromptInjectedAt, &agent.EndedAt)
		if err != nil || agent.PromptInjectedAt != nil || agent.EndedAt != nil {
			return err
		}
		if skills, err = i.skills(ctx, agent); err != nil || skills == "" {
			return err
		}
		return tx.QueryRow(ctx, `UPDATE hooks.agents SET prompt_injected_at = now() WHERE id = $1 RETURNING prompt_injected_at`,
			agent.ID).Scan(&agent.PromptInjectedAt)
	})
	if err != nil {
		return "", fmt.Errorf("agents: inject skills into agent %d: %w", agent.ID, err)
	}
	return skills, nil
}
