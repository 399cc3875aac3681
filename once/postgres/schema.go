package postgres

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgtable"
)

// Schema returns SQL for migrations. It creates the table of ticks unless the table exists. table
// is as in Config; "" = DefaultTable. Nodes need SELECT, INSERT, UPDATE and DELETE on it.
func Schema(table string) string { return pgtable.SQL(tickTable(cmp.Or(table, DefaultTable))) }

// indexSuffix ends the name of the table's index.
const indexSuffix = "_tick"

func tickTable(table string) pgtable.Table {
	_, name := pgtable.Split(table)
	return pgtable.Table{
		Name: table,
		Columns: `	job text NOT NULL,
	tick timestamptz NOT NULL,      -- the scheduled time
	state text NOT NULL,            -- running, ran, failed, or open: it was given back
	node text NOT NULL,             -- who runs it or ran it last
	id text NOT NULL,               -- of that claim
	token bigint NOT NULL,          -- greater than that of each earlier claim of the tick
	began timestamptz NOT NULL,
	expires_at timestamptz,         -- while it runs: when another may have it
	ended timestamptz,
	PRIMARY KEY (job, tick)`,
		After: "CREATE INDEX IF NOT EXISTS " + pgx.Identifier{name + indexSuffix}.Sanitize() + " ON " + pgtable.Quote(table) + " (tick)",
	}
}

// Migrate creates the table of ticks unless it exists. Several processes may call it at the same
// time. If the table lacks a column, Migrate returns once.ErrNotReady and leaves the table
// unchanged.
func (s *Store) Migrate(ctx context.Context) error {
	return failed(s.table, pgtable.Create(ctx, s.pool, "Store.Migrate or postgres.Schema", tickTable(s.table)))
}
