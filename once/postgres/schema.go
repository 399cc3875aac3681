package postgres

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/once"
)

// Schema returns the SQL, for migrations, that creates the table of ticks unless it exists. table
// is as in Config; "" = DefaultTable. Nodes need SELECT, INSERT, UPDATE and DELETE on it.
func Schema(table string) string {
	table = cmp.Or(table, DefaultTable)
	_, name := split(table)
	return `CREATE TABLE IF NOT EXISTS ` + quoted(table) + ` (
	job text NOT NULL,
	tick timestamptz NOT NULL,      -- the scheduled time
	state text NOT NULL,            -- running, ran, failed, or open: it was given back
	node text NOT NULL,             -- who runs it or ran it last
	id text NOT NULL,               -- of that claim
	token bigint NOT NULL,          -- greater than that of each earlier claim of the tick
	began timestamptz NOT NULL,
	expires_at timestamptz,         -- while it runs: when another may have it
	ended timestamptz,
	PRIMARY KEY (job, tick)
);
CREATE INDEX IF NOT EXISTS ` + pgx.Identifier{name + "_tick"}.Sanitize() + ` ON ` + quoted(table) + ` (tick)`
}

// thereSQL needs no rights, not even on the schema, so that a role without rights on an existing
// table does not try to create it.
const thereSQL = `SELECT EXISTS (SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
	WHERE n.nspname OPERATOR(pg_catalog.=) $1::pg_catalog.text AND c.relname OPERATOR(pg_catalog.=) $2::pg_catalog.text)`

// migrateAttempts is how often a creation that lost a race is repeated.
const migrateAttempts = 5

// Migrate creates the table of ticks unless it exists. Several processes may do so at a time.
func (s *Store) Migrate(ctx context.Context) error {
	var there bool
	schema, name := split(s.table)
	err := s.pool.QueryRow(ctx, thereSQL, schema, name).Scan(&there)
	if there {
		return nil
	}
	for range migrateAttempts {
		if err != nil && !lostRace(err) {
			break
		}
		if _, err = s.pool.Exec(ctx, Schema(s.table), pgx.QueryExecModeSimpleProtocol); err == nil {
			return nil
		}
	}
	switch sqlstate.Of(err) {
	case sqlstate.Privilege:
		return fmt.Errorf("once/postgres: %w: the role may not create the table %s: let one that may run Store.Migrate or postgres.Schema: %w", once.ErrNotReady, s.table, err)
	case sqlstate.InvalidSchema:
		return fmt.Errorf("once/postgres: %w: the schema of the table %s does not exist: create it, or use another table: %w", once.ErrNotReady, s.table, err)
	}
	return failed(s.table, err)
}

// lostRace reports whether an error comes from a concurrent creation: IF NOT EXISTS checks before
// it creates.
func lostRace(err error) bool {
	switch sqlstate.Of(err) {
	case sqlstate.DuplicateTable, sqlstate.DuplicateObject, sqlstate.UniqueViolation:
		return true
	}
	return false
}
