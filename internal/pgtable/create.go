package pgtable

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/sqlstate"
)

// A CreateError reports that tables are missing, and that the server refuses to create them.
type CreateError struct {
	Table  string
	Remedy string // what a role that may create the table can run
	Cause  error
}

func (e *CreateError) Error() string {
	if sqlstate.Of(e.Cause) == sqlstate.InvalidSchema {
		return fmt.Sprintf("the schema of the table %s does not exist: create it, or use another table: %v", e.Table, e.Cause)
	}
	return fmt.Sprintf("the role may not create the table %s: let one that may run %s: %v", e.Table, e.Remedy, e.Cause)
}

// Unwrap returns the server's error.
func (e *CreateError) Unwrap() error { return e.Cause }

// An Execer runs statements: a connection or a pool.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// createAttempts is how often a creation is tried if it loses a race.
const createAttempts = 5

// Create creates the tables that are missing. Several processes may do so at a time. If all tables exist, Create writes
// nothing, and needs only the right to read them. If a table lacks a column, the error has the code
// sqlstate.UndefinedColumn, and nothing was created. A *CreateError names the first table, and the remedy.
func Create(ctx context.Context, db Execer, remedy string, tables ...Table) error {
	check := checkSQL(tables)
	_, err := db.Exec(ctx, check)
	if !isMissing(err) {
		return err
	}
	for range createAttempts {
		if _, err = db.Exec(ctx, SQL(tables...)+";\n"+check); !lostRace(err) {
			break
		}
	}
	switch sqlstate.Of(err) {
	case sqlstate.Privilege, sqlstate.InvalidSchema:
		return &CreateError{Table: tables[0].Name, Remedy: remedy, Cause: err}
	}
	return err
}

func isMissing(err error) bool {
	switch sqlstate.Of(err) {
	case sqlstate.UndefinedTable, sqlstate.InvalidSchema:
		return true
	}
	return false
}

// lostRace reports whether an error comes from a concurrent creation: IF NOT EXISTS checks before it creates.
func lostRace(err error) bool {
	switch sqlstate.Of(err) {
	case sqlstate.DuplicateTable, sqlstate.DuplicateObject, sqlstate.UniqueViolation:
		return true
	}
	return false
}
