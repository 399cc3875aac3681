// Package dbtest is a test's own view of a database, beside that of the code under test.
package dbtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// A Database is a database as its test or demo sees it.
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
	return &Database{DSN: dsn, Pool: Pool(tb, dsn), tb: tb}
}

// Pool returns a pool, which is closed when the test ends.
func Pool(tb testing.TB, dsn string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(tb.Context(), dsn)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

// Exec runs a statement.
func Exec(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	tb.Helper()
	_, err := pool.Exec(context.WithoutCancel(tb.Context()), sql, args...)
	require.NoError(tb, err)
}

// One returns a query's only value or row.
func One[T any](tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) T {
	tb.Helper()
	rows, _ := pool.Query(context.WithoutCancel(tb.Context()), sql, args...)
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(tb, err)
	return row
}

// Context returns the context of the test or demo.
func (d *Database) Context() context.Context { return d.tb.Context() }

// TB returns the test or demo.
func (d *Database) TB() testing.TB { return d.tb }

// Exec runs a statement.
func (d *Database) Exec(sql string, args ...any) {
	d.tb.Helper()
	Exec(d.tb, d.Pool, sql, args...)
}

// An asker is a Database, or embeds one.
type asker interface{ database() *Database }

func (d *Database) database() *Database { return d }

// Ask returns a query's only value or row.
func Ask[T any](d asker, sql string, args ...any) T {
	db := d.database()
	db.tb.Helper()
	return One[T](db.tb, db.Pool, sql, args...)
}

// Until waits until condition holds.
func (d *Database) Until(condition func() bool) {
	d.tb.Helper()
	await.Until(d.tb, await.Soon, condition)
}

// Terminate ends a session, and waits until it is gone.
func (d *Database) Terminate(pid uint32) {
	d.tb.Helper()
	d.Exec("SELECT pg_terminate_backend($1)", int64(pid))
	d.Until(func() bool {
		return Ask[int](d, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", int64(pid)) == 0
	})
}

// Begin begins a transaction, which is rolled back when the test ends.
func (d *Database) Begin() pgx.Tx {
	d.tb.Helper()
	tx, err := d.Pool.Begin(d.Context())
	require.NoError(d.tb, err)
	d.tb.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}
