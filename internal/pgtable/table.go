// Package pgtable contains the common parts of the tables of elections and shards: their names, their creation, and the
// SQL of terms.
package pgtable

import (
	"context"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/sqlstate"
)

var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// Valid reports whether text is "table" or "schema.table".
func Valid(text string) bool { return tableName.MatchString(text) }

// Quote returns the name of a valid table as SQL; its schema is public unless the name contains one.
func Quote(table string) string {
	schema, name, ok := strings.Cut(table, ".")
	if !ok {
		schema, name = "public", table
	}
	return pgx.Identifier{schema, name}.Sanitize()
}

// createAttempts is how often a creation is tried if it loses a race.
const createAttempts = 5

// Create runs SQL that creates missing objects. Several processes may run it at a time.
func Create(ctx context.Context, conn *pgx.Conn, sql string) (err error) {
	for range createAttempts {
		if _, err = conn.Exec(ctx, sql); !lostRace(err) {
			break
		}
	}
	return err
}

// lostRace reports whether an error comes from a concurrent creation: IF NOT EXISTS checks before it creates.
func lostRace(err error) bool {
	switch sqlstate.Of(err) {
	case sqlstate.DuplicateTable, sqlstate.DuplicateObject, sqlstate.UniqueViolation:
		return true
	}
	return false
}
