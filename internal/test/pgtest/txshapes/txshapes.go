// Package txshapes contains values that programs pass as a transaction: transactions of all kinds,
// and values that only have the methods of one.
package txshapes

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pgsession"
)

// Wrappers of programs and libraries around pools and transactions.
type (
	wrappedDB   struct{ *sql.DB }
	wrappedConn struct{ *sql.Conn }
	wrappedTx   struct{ *sql.Tx }
	wrappedPool struct{ *pgxpool.Pool }
	wrappedPgx  struct{ pgx.Tx }
)

// A libraryTx is the transaction of a library with its own placeholders, which does not recognize
// $1.
type libraryTx struct{ *sql.Tx }

var errPlaceholders = errors.New("arguments for a statement without placeholders")

func (tx libraryTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if len(args) > 0 {
		return nil, errPlaceholders
	}
	return tx.Tx.ExecContext(ctx, query)
}

func (tx libraryTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if len(args) > 0 {
		return nil, errPlaceholders
	}
	return tx.Tx.QueryContext(ctx, query)
}

// A Base is the set of connections to a database, for a test.
type Base struct {
	*testing.T
	Pool *pgxpool.Pool
	DB   *sql.DB
}

// InEveryMode runs a test with each protocol. dsn returns a database.
func InEveryMode(t *testing.T, dsn func(testing.TB) string, test func(b Base, dsn string)) {
	t.Helper()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			dsn := dsn(t)
			u, err := url.Parse(dsn)
			require.NoError(t, err)
			q := u.Query()
			q.Set("default_query_exec_mode", map[pgx.QueryExecMode]string{
				pgx.QueryExecModeCacheStatement: "cache_statement", pgx.QueryExecModeExec: "exec", pgx.QueryExecModeSimpleProtocol: "simple_protocol",
			}[mode])
			u.RawQuery = q.Encode()
			pool, err := pgxpool.New(t.Context(), u.String())
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			db, err := sql.Open("pgx", u.String())
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			test(Base{t, pool, db}, dsn)
		})
	}
}

// Each runs a test with each of the shapes, and ends the shape.
func (b Base) Each(shapes map[string]func(Base) any, test func(t *testing.T, name string, tx any)) {
	b.Helper()
	for name, shape := range shapes {
		b.Run(name, func(t *testing.T) {
			b := b
			b.T = t
			test(t, name, shape(b))
		})
	}
}

// Exec sends a statement through one of the shapes.
func Exec(ctx context.Context, tx any, statement string) (err error) {
	if tx, ok := tx.(pgsession.PgxTx); ok {
		_, err = tx.Exec(ctx, statement)
		return err
	}
	_, err = tx.(pgsession.SQLTx).ExecContext(ctx, statement)
	return err
}

// None are values with the methods of a transaction that are not one.
var None = map[string]func(b Base) any{
	"*pgxpool.Pool":              func(b Base) any { return b.Pool },
	"struct{*pgxpool.Pool}":      func(b Base) any { return wrappedPool{b.Pool} },
	"*pgxpool.Conn":              func(b Base) any { return b.poolConn() },
	"*pgx.Conn":                  func(b Base) any { return b.poolConn().Conn() },
	"*sql.DB":                    func(b Base) any { return b.DB },
	"struct{*sql.DB}":            func(b Base) any { return wrappedDB{b.DB} },
	"*sql.Conn":                  func(b Base) any { return b.sqlConn() },
	"struct{*sql.Conn}":          func(b Base) any { return wrappedConn{b.sqlConn()} },
	"a pgx.Tx that sent COMMIT":  func(b Base) any { return b.sent(b.pgxTx(), "COMMIT") },
	"a *sql.Tx that sent COMMIT": func(b Base) any { return b.sent(b.sqlTx(), "COMMIT") },
}

// ReadOnly is the name of a read-only transaction.
const ReadOnly = "a read-only transaction"

// Begun are values in a transaction.
var Begun = map[string]func(b Base) any{
	"pgx.Tx":                 func(b Base) any { return b.pgxTx() },
	"struct{pgx.Tx}":         func(b Base) any { return wrappedPgx{b.pgxTx()} },
	"*sql.Tx":                func(b Base) any { return b.sqlTx() },
	"struct{*sql.Tx}":        func(b Base) any { return wrappedTx{b.sqlTx()} },
	"a library on *sql.Tx":   func(b Base) any { return libraryTx{b.sqlTx()} },
	"BEGIN on *sql.Conn":     func(b Base) any { return b.sent(b.sqlConn(), "BEGIN") },
	"BEGIN on *pgx.Conn":     func(b Base) any { return b.sent(b.poolConn().Conn(), "BEGIN") },
	"BEGIN on *pgxpool.Conn": func(b Base) any { return b.sent(b.poolConn(), "BEGIN") },
	"a savepoint": func(b Base) any {
		b.Helper()
		tx, err := b.pgxTx().Begin(b.Context())
		require.NoError(b, err)
		return tx
	},
	ReadOnly: func(b Base) any { return b.sent(b.sqlTx(), "SET TRANSACTION READ ONLY") },
}

func (b Base) sent(tx any, statement string) any {
	b.Helper()
	require.NoError(b, Exec(b.Context(), tx, statement))
	return tx
}

func (b Base) poolConn() *pgxpool.Conn {
	b.Helper()
	conn, err := b.Pool.Acquire(b.Context())
	require.NoError(b, err)
	b.Cleanup(conn.Release)
	return conn
}

func (b Base) sqlConn() *sql.Conn {
	b.Helper()
	conn, err := b.DB.Conn(b.Context())
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (b Base) sqlTx() *sql.Tx {
	b.Helper()
	tx, err := b.DB.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (b Base) pgxTx() pgx.Tx {
	b.Helper()
	tx, err := b.Pool.Begin(b.Context())
	require.NoError(b, err)
	b.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.Context())) })
	return tx
}
