package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/driver"
)

// Schema returns the SQL that makes the table of terms unless it is there, or adds the
// columns that one of an earlier version has not, for migrations. table is as in Config; "" = DefaultTable. Candidates need SELECT,
// INSERT and UPDATE on it. An election has one row; without it the terms begin
// again.
func Schema(table string) string {
	return schemaSQL(quoteTable(cmp.Or(table, DefaultTable)))
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
	written text                    -- database and transaction that wrote the row
);
ALTER TABLE ` + table + ` ADD COLUMN IF NOT EXISTS server_start timestamptz, ADD COLUMN IF NOT EXISTS written text`
}

// migrateAttempts is how often a creation that lost a race is repeated.
const migrateAttempts = 5

// Migrate makes the table of terms unless it is there, or adds the columns that one of an
// earlier version has not, which its owner may do, on a connection of its own.
// Several may do so at a time.
func (b *Backend) Migrate(ctx context.Context) error {
	err := b.onConn(ctx, func(conn *pgx.Conn) (err error) {
		for range migrateAttempts {
			if _, err = conn.Exec(ctx, schemaSQL(b.table)); !lostRace(err) {
				break
			}
		}
		return err
	})
	switch state := sqlstate.Of(err); {
	case err == nil:
		return nil
	case state == sqlstate.Privilege:
		return driver.Permanent(fmt.Errorf("leader: the role may not create the table %s: let one that may run postgres.Schema or pglatch migrate: %w", b.config.Table, err))
	case state == sqlstate.InvalidSchema:
		return driver.Permanent(fmt.Errorf("leader: the schema of the table %s does not exist: create it, or use another table: %w", b.config.Table, err))
	}
	return fmt.Errorf("leader: creating the table %s: %w", b.config.Table, err)
}

// lostRace reports whether an error comes from a creation at the same time: IF NOT
// EXISTS looks before it creates.
func lostRace(err error) bool {
	switch sqlstate.Of(err) {
	case sqlstate.DuplicateTable, sqlstate.DuplicateObject, sqlstate.UniqueViolation:
		return true
	}
	return false
}

// closeBound is how long a connection may take to say goodbye.
const closeBound = time.Second

// onConn runs f on a connection that carries no lock.
func (b *Backend) onConn(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := b.plain.Connect(ctx)
	if err != nil {
		return unreachable(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
		defer cancel()
		_ = conn.Close(ctx) // there is nothing on it
	}()
	err = f(conn)
	if conn.IsClosed() && err != nil {
		return unreachable(fmt.Errorf("%w: %w", session.ErrUnavailable, err))
	}
	return err
}
