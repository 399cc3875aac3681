package agents

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// inTx runs fn in a transaction and commits it, unless ctx has ended: with the
// context of a lock, work that was stopped and wakes up after the lock was lost
// changes nothing. The check is made right before the commit, and so is not proof
// against a stop in between: a write that must never come late needs a guarded
// transaction or a fencing token.
func inTx(ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}
