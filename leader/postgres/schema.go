package postgres

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/pgreach"
)

// Schema returns the SQL that creates the table of terms unless it exists, for migrations. table is as in
// Config; "" = DefaultTable. Candidates need SELECT, INSERT and UPDATE on it. An election has one row. If its
// row is deleted, its terms begin again.
func Schema(table string) string {
	return schemaSQL(pgtable.Quote(cmp.Or(table, DefaultTable)))
}

func schemaSQL(table string) string {
	return `CREATE TABLE IF NOT EXISTS ` + table + ` (
	election text PRIMARY KEY,      -- the key of the election lock: "1:100" or "@12345"
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
	name text                       -- what the leader calls the election; null = by its key
)`
}

// checkSQL fails if the table lacks a column.
const checkSQL = `SELECT election, era, n, timeline, system_identifier, identity, pid, backend_start, since, ended_at, server_start, written, name FROM %s LIMIT 0`

// Migrate creates the table of terms unless it exists, on a connection of its own. Several processes may call
// it at the same time. If the table lacks a column, Migrate returns a *TableError and leaves the table
// unchanged.
func (b *Backend) Migrate(ctx context.Context) error {
	err := b.onConn(ctx, func(conn *pgx.Conn) error {
		return pgtable.Create(ctx, conn, schemaSQL(b.table)+"; "+fmt.Sprintf(checkSQL, b.table))
	})
	switch state := sqlstate.Of(err); {
	case err == nil:
		return nil
	case state == sqlstate.UndefinedColumn:
		return &TableError{Table: b.config.Table, Outdated: true, Cause: err}
	case state == sqlstate.Privilege:
		return driver.Permanent(fmt.Errorf("leader: the role may not create the table %s: let one that may run postgres.Schema or pglatch migrate: %w", b.config.Table, err))
	case state == sqlstate.InvalidSchema:
		return driver.Permanent(fmt.Errorf("leader: the schema of the table %s does not exist: create it, or use another table: %w", b.config.Table, err))
	}
	return fmt.Errorf("leader: creating the table %s: %w", b.config.Table, err)
}

// onConn runs f on a connection that carries no lock.
func (b *Backend) onConn(ctx context.Context, f func(*pgx.Conn) error) error {
	reached, err := b.plain.Do(ctx, f)
	if !reached {
		return pgreach.Unreachable(err)
	}
	return err
}
