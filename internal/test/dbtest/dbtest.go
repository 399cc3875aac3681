// Package dbtest is what the tests and demos of the examples ask of their database.
package dbtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// A Database is a test's or a demo's view of the database of an example.
type Database struct {
	DSN  string
	Pool *pgxpool.Pool
	tb   testing.TB
}

// New returns an empty database.
func New(t *testing.T) *Database {
	t.Helper()
	return Open(t, pgtest.DSN(t))
}

// Open returns a database that exists.
func Open(tb testing.TB, dsn string) *Database {
	tb.Helper()
	pool, err := pgxpool.New(tb.Context(), dsn)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	return &Database{DSN: dsn, Pool: pool, tb: tb}
}

// Context returns the context of the test or demo.
func (d *Database) Context() context.Context { return d.tb.Context() }

// Exec runs a statement.
func (d *Database) Exec(sql string, args ...any) {
	d.tb.Helper()
	_, err := d.Pool.Exec(d.Context(), sql, args...)
	require.NoError(d.tb, err)
}

// Ask returns a query's only value or row.
func Ask[T any](d *Database, sql string, args ...any) T {
	d.tb.Helper()
	rows, _ := d.Pool.Query(d.Context(), sql, args...)
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(d.tb, err)
	return row
}
