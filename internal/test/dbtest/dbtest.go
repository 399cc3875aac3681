// Package dbtest is what tests of the examples ask of their database.
package dbtest

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// A Database is a test's view of the database of an example.
type Database struct {
	DSN  string
	Pool *pgxpool.Pool
	t    *testing.T
}

// New returns an empty database.
func New(t *testing.T) *Database {
	t.Helper()
	d := &Database{DSN: pgtest.DSN(t), t: t}
	var err error
	d.Pool, err = pgxpool.New(t.Context(), d.DSN)
	require.NoError(t, err)
	t.Cleanup(d.Pool.Close)
	return d
}

// Exec runs a statement.
func (d *Database) Exec(sql string, args ...any) {
	d.t.Helper()
	_, err := d.Pool.Exec(d.t.Context(), sql, args...)
	require.NoError(d.t, err)
}

// Ask returns a query's only value or row.
func Ask[T any](d *Database, sql string, args ...any) T {
	d.t.Helper()
	rows, _ := d.Pool.Query(d.t.Context(), sql, args...)
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(d.t, err)
	return row
}
