package agents

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// inTx runs fn in a transaction and commits it, unless ctx has ended. With the context of a
// lock, a process that is stopped and resumes after the lock was lost changes nothing. The
// check comes right before the commit, so a stop between the two goes unnoticed. A write that
// must never come late needs a guarded transaction or a fencing token.
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
