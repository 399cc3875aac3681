package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/postgres"
)

// The number of tenants, and how often each one's work writes.
const (
	tenants = 300
	every   = 2 * time.Second
)

func tenantNames() []string {
	names := make([]string, tenants)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%03d", i)
	}
	return names
}

// An office works for the tenants that its node owns.
type office struct {
	node    string
	pool    *pgxpool.Pool // for writes: other connections carry the ownership
	guarded bool
	log     *slog.Logger
}

// work is one tenant's work. When ctx ends it writes once more, like work that checked its context
// a moment before. If that write is too late, the guard must refuse it.
func (o *office) work(ctx context.Context, s shards.Shard) error {
	for {
		over := ctx.Err() != nil
		err := o.write(context.WithoutCancel(ctx), s)
		if errors.Is(err, leader.ErrNotLeader) {
			o.log.Info(refused, slog.String("tenant", s.Name), slog.Any("error", err))
			err = nil
		}
		if over || err != nil {
			return err
		}
		demokit.Pause(ctx, every)
	}
}

// write adds a row for the tenant.
func (o *office) write(ctx context.Context, s shards.Shard) error {
	ctx, cancel := context.WithTimeout(ctx, demokit.Patience)
	defer cancel()
	write := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO acts (tenant, term, node) VALUES ($1, $2, $3)`, s.Name, int64(s.Term.Uint64()), o.node) //nolint:gosec // terms fit
		return err
	}
	if !o.guarded {
		return pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error { return write(ctx, tx) })
	}
	return postgres.InTx(ctx, o.pool, write)
}
