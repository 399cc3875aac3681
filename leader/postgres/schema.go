package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/pgreach"
)

// Schema returns the SQL that creates the table of terms unless it exists, for migrations. table is as in
// Config; "" = DefaultTable. Candidates need SELECT, INSERT and UPDATE on it. An election has one row. If
// that row is deleted, the election's terms start over.
func Schema(table string) string { return pgtable.SQL(termTable(cmp.Or(table, DefaultTable))) }

func termTable(name string) pgtable.Table {
	return pgtable.Table{Name: name, Columns: `	election text PRIMARY KEY,      -- the key of the election lock: "1:100" or "@12345"
	era int NOT NULL,               -- the term is (era, n): each is greater than all before
	n bigint NOT NULL,
	timeline bigint NOT NULL,       -- the server that counted it
	system_identifier bigint NOT NULL,
	identity text NOT NULL,         -- the leader and its session
	pid int NOT NULL,
	backend_start timestamptz NOT NULL,
	since timestamptz NOT NULL,
	ended_at timestamptz,           -- null while the term lasts, and if it was cut off
	server_start timestamptz,       -- the start of that server
	written text,                   -- database and transaction that wrote the row
	name text                       -- what the leader calls the election; null = by its key`}
}

// Migrate creates the table of terms unless it exists, on a connection of its own. Several processes may call
// it at the same time. If the table lacks a column, or the role may not read it, Migrate returns a *TableError
// and leaves the table unchanged.
func (b *Backend) Migrate(ctx context.Context) error {
	err := pgreach.Do(ctx, b.plain, func(conn *pgx.Conn) error {
		return pgtable.Create(ctx, conn, "postgres.Schema or pglatch migrate", termTable(b.config.Table))
	})
	if refused, ok := errors.AsType[*pgtable.CreateError](err); ok {
		return driver.Permanent(fmt.Errorf("leader: %w", refused))
	}
	switch state := sqlstate.Of(err); {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrConnection): // the role may not connect: nothing is known of the table
	case state == sqlstate.UndefinedColumn, state == sqlstate.Privilege:
		return &TableError{Table: b.config.Table, Outdated: state == sqlstate.UndefinedColumn, Cause: err}
	}
	return fmt.Errorf("leader: creating the table %s: %w", b.config.Table, err)
}
