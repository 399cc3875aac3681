package scheduler

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pool is the work pool.
func (n *Node) Pool() *pgxpool.Pool { return n.pool }

// Answer bounds the check of a mount.
var Answer = answer

// RunOnce does one run of a scheduler that does nothing, under the term of ctx.
func (n *Node) RunOnce(ctx context.Context) error {
	return n.newScheduler("once", func(context.Context, pgx.Tx) error { return nil }).run(ctx)
}
