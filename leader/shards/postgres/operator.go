package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/pgreach"
)

// Pin implements driver.Operator, on a connection of its own.
func (b *Backend) Pin(ctx context.Context, shard, identity string) error {
	return b.order(ctx, pinOrder, shard, identity, identity != "")
}

// Drain implements driver.Operator, on a connection of its own.
func (b *Backend) Drain(ctx context.Context, identity string, drain bool) error {
	return b.order(ctx, drainOrder, identity, "", drain)
}

// order writes an order, or deletes it.
func (b *Backend) order(ctx context.Context, kind, subject, identity string, wanted bool) error {
	group := b.group.Namespace.String()
	sql := `DELETE FROM ` + b.group.Orders + ` WHERE shards = $1 AND kind = $2 AND subject = $3`
	const unprepared = pgx.QueryExecModeExec // otherwise a pooler in transaction mode would give the statement to another session
	args := []any{unprepared, group, kind, subject}
	if wanted {
		sql = `INSERT INTO ` + b.group.Orders + ` (shards, kind, subject, identity) VALUES ($1, $2, $3, $4)
			ON CONFLICT (shards, kind, subject) DO UPDATE SET identity = excluded.identity`
		args = append(args, identity)
	}
	write := func() error {
		return pgreach.Do(ctx, b.plain, func(conn *pgx.Conn) error {
			return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadWrite, IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, `SELECT pg_catalog.set_config('search_path', 'pg_catalog', true)`); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, sql, args...); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, `SELECT pg_catalog.pg_notify($1, '')`, unprepared, b.group.Channel())
				return err
			})
		})
	}
	err := write()
	if b.config.CreateTable && sqlstate.Of(err) == sqlstate.UndefinedTable {
		if err = b.Migrate(ctx); err == nil {
			err = write()
		}
	}
	if sqlstate.Of(err) == sqlstate.Privilege {
		return driver.Permanent(fmt.Errorf("shards: the role may not write what is wanted: GRANT INSERT, UPDATE, DELETE ON %s TO the role: %w", b.group.Orders, err))
	}
	if err != nil {
		return fmt.Errorf("shards: %s %s: %w", kind, subject, b.failed(err))
	}
	return nil
}
