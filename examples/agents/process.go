package agents

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
)

// process does the work of a hook. ctx is the context of the agent's lock: once the lock is
// lost, nothing more is committed.
func (a *App) process(ctx context.Context, h *Hook, hook hookFunc) error {
	span, err := a.beginSpan(ctx, h)
	if err != nil {
		return err
	}
	err = inTx(ctx, a.pool, func(tx pgx.Tx) (err error) {
		if h.agent, h.command, err = readAgent(ctx, tx, h.agentID); err != nil {
			return err
		}
		if err := seeAgent(ctx, tx, h.agent); err != nil {
			return err
		}
		return hook(ctx, tx, h)
	})
	if err != nil {
		return fmt.Errorf("agents: %s of agent %d: %w", h.name, h.agentID, err)
	}
	for _, fn := range h.committed {
		if err := fn(ctx); err != nil {
			return err
		}
	}
	// The hook is committed whether or not this succeeds. After a failure the next hook tries again.
	if h.skills, err = a.injector.Inject(ctx, h.agent); err != nil {
		a.config.Logger.WarnContext(ctx, "skills_not_injected", slog.String("hook", h.name), slog.Any("error", err))
	}
	return a.endSpan(ctx, span)
}
