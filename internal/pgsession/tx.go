package pgsession

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// A Tx runs statements in the caller's transaction, whatever its driver. Queries have constant texts, because drivers
// prepare them. For queries with arguments, use TxAsk.
type Tx interface {
	Exec(ctx context.Context, sql string, args ...any) error
	QueryRow(ctx context.Context, sql string, dest any) error
}

// A PgxTx is the part of pgx.Tx that a Tx uses.
type PgxTx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// A SQLTx is the part of *sql.Tx that a Tx uses. Transactions of libraries on top of database/sql have it too.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// FromPgx returns a transaction of pgx. A value that has the methods but is recognizably no transaction fails at
// once. Otherwise locks and guards ask the server.
func FromPgx(tx PgxTx) Tx {
	if isNil(tx) {
		return noTx{errNilTx}
	}
	idle := false
	switch tx := tx.(type) {
	case *pgxpool.Pool:
		idle = true
	case *pgxpool.Conn:
		idle = tx.Conn().PgConn().TxStatus() == txIdle
	case *pgx.Conn:
		idle = tx.PgConn().TxStatus() == txIdle
	}
	if idle {
		return noTx{errNoTx}
	}
	return pgxTx{tx}
}

// States of the protocol's ReadyForQuery.
const (
	txIdle  = 'I' // not in a transaction block
	txBlock = 'T' // in one that has not failed
)

// FromSQL returns a transaction of database/sql. A *sql.DB fails at once. Otherwise locks and guards ask the server.
func FromSQL(tx SQLTx) Tx {
	if isNil(tx) {
		return noTx{errNilTx}
	}
	if _, ok := tx.(*sql.DB); ok {
		return noTx{errNoTx}
	}
	return sqlTx{tx}
}

var (
	errNoTx  = fmt.Errorf("%w, so that the lock would be given back at once: pass a transaction, not a pool or a connection", session.ErrNoTransaction)
	errNilTx = fmt.Errorf("%w: the transaction is nil", session.ErrNoTransaction)
)

// isNil reports whether tx is nil, or a nil pointer such as that of a *sql.Tx whose begin failed.
func isNil(tx any) bool {
	v := reflect.ValueOf(tx)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// A noTx is not a transaction; err is the reason.
type noTx struct{ err error }

func (t noTx) Exec(context.Context, string, ...any) error  { return t.err }
func (t noTx) QueryRow(context.Context, string, any) error { return t.err }

type pgxTx struct{ tx PgxTx }

func (t pgxTx) Exec(ctx context.Context, sql string, args ...any) error {
	_, err := t.tx.Exec(ctx, sql, args...)
	return err
}

func (t pgxTx) QueryRow(ctx context.Context, sql string, dest any) error {
	return t.tx.QueryRow(ctx, sql).Scan(dest)
}

// inBlock reports whether the connection is known, and in a transaction block.
func (t pgxTx) inBlock() bool {
	tx, ok := t.tx.(interface{ Conn() *pgx.Conn })
	if !ok {
		return false
	}
	conn := tx.Conn()
	return conn != nil && conn.PgConn().TxStatus() == txBlock
}

// A sqlTx sends the arguments as literals, because libraries on top of database/sql have their own placeholders.
// Drivers do not prepare such an Exec, and pg_stat_statements leaves the literals out, except in a DO block.
type sqlTx struct{ tx SQLTx }

func (t sqlTx) Exec(ctx context.Context, query string, args ...any) error {
	_, err := t.tx.ExecContext(ctx, inline(query, args))
	return err
}

func (t sqlTx) QueryRow(ctx context.Context, query string, dest any) (err error) {
	rows, err := t.tx.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if !rows.Next() {
		return cmp.Or(rows.Err(), sql.ErrNoRows)
	}
	if err := rows.Scan(dest); err != nil {
		return err
	}
	for rows.Next() { // an error can follow the row
	}
	return rows.Err()
}

var placeholder = regexp.MustCompile(`\$[0-9]+`)

// inline replaces $1, $2, … by arguments; they must be outside of literals.
func inline(query string, args []any) string {
	return placeholder.ReplaceAllStringFunc(query, func(p string) string {
		n, _ := strconv.Atoi(p[1:])
		if n < 1 || n > len(args) {
			return p
		}
		if text, ok := args[n-1].(string); ok {
			return Literal(text)
		}
		return fmt.Sprintf("'%v'", args[n-1])
	})
}

// TxSend runs a statement, and types its error.
func TxSend(ctx context.Context, tx Tx, sql string, args ...any) error {
	return txError(tx.Exec(ctx, sql, args...))
}

// txError types the error of a statement in a caller's transaction. A driver that caches prepared statements, which
// is pgx's default, also prepares our queries.
func txError(err error) error {
	switch sqlstate.Of(err) {
	case sqlstate.OutOfMemory:
		return lockTableFull(err)
	case sqlstate.DuplicateStatement, sqlstate.UndefinedStatement:
		return fmt.Errorf("%w, and the driver keeps prepared statements, which stay on the sessions of the server: "+
			"let it prepare none (pgx: default_query_exec_mode=exec in the DSN), or let the pooler keep them (PgBouncer 1.21: max_prepared_statements): %w", session.ErrPooler, err)
	}
	return err
}
