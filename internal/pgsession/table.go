package pgsession

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// ValidTable reports whether text is "table" or "schema.table".
func ValidTable(text string) bool { return tableName.MatchString(text) }

// QuoteTable returns the name of a valid table as SQL; its schema is public unless it says another.
func QuoteTable(table string) string {
	schema, name, ok := strings.Cut(table, ".")
	if !ok {
		schema, name = "public", table
	}
	return pgx.Identifier{schema, name}.Sanitize()
}

// createAttempts is how often a creation that lost a race is repeated.
const createAttempts = 5

// Create runs SQL that creates what is not there, which several may do at a time.
func Create(ctx context.Context, conn *pgx.Conn, sql string) (err error) {
	for range createAttempts {
		if _, err = conn.Exec(ctx, sql); !lostRace(err) {
			break
		}
	}
	return err
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

// Do runs f on a connection that carries no lock, and closes it. reached is false if there was none, or
// none any more: the error is then the connection's, and f's otherwise.
func (d *Dialer) Do(ctx context.Context, f func(*pgx.Conn) error) (reached bool, err error) {
	conn, err := d.Connect(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
		defer cancel()
		_ = conn.Close(ctx) // there is nothing on it
	}()
	if err = f(conn); err != nil && conn.IsClosed() {
		return false, fmt.Errorf("%w: %w", session.ErrUnavailable, err)
	}
	return true, err
}
