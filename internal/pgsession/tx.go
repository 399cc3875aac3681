package pgsession

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A Tx runs statements in a transaction of the caller's, whatever its driver.
type Tx interface {
	Exec(ctx context.Context, sql string) error
	QueryRow(ctx context.Context, sql string, args []any, dest any) error
}

// A PgxTx is what a Tx needs of pgx.Tx.
type PgxTx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// A SQLTx is what a Tx needs of *sql.Tx.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// FromPgx returns a transaction of pgx. What is seen to be none, though it has the
// methods of one, fails at once; TxTry asks the server.
func FromPgx(tx PgxTx) Tx {
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
		return noTx{}
	}
	return pgxTx{tx}
}

const txIdle = 'I' // of the protocol's ReadyForQuery: not in a transaction block

// FromSQL returns a transaction of database/sql. A *sql.DB fails at once; TxTry asks
// the server.
func FromSQL(tx SQLTx) Tx {
	if _, ok := tx.(*sql.DB); ok {
		return noTx{}
	}
	return sqlTx{tx}
}

var errNoTx = fmt.Errorf("%w, so that the lock would be given back at once: pass a transaction, not a pool or a connection", session.ErrNoTransaction)

// noTx is no transaction.
type noTx struct{}

func (noTx) Exec(context.Context, string) error                 { return errNoTx }
func (noTx) QueryRow(context.Context, string, []any, any) error { return errNoTx }

type pgxTx struct{ tx PgxTx }

func (t pgxTx) Exec(ctx context.Context, sql string) error {
	_, err := t.tx.Exec(ctx, sql)
	return err
}

func (t pgxTx) QueryRow(ctx context.Context, sql string, args []any, dest any) error {
	return t.tx.QueryRow(ctx, sql, args...).Scan(dest)
}

type sqlTx struct{ tx SQLTx }

func (t sqlTx) Exec(ctx context.Context, sql string) error {
	_, err := t.tx.ExecContext(ctx, sql)
	return err
}

func (t sqlTx) QueryRow(ctx context.Context, sql string, args []any, dest any) error {
	return t.tx.QueryRowContext(ctx, sql, args...).Scan(dest)
}

// TxTry takes a transaction-scoped lock if it is free. Outside of a transaction it
// takes nothing and fails with session.ErrNoTransaction.
//
// No query can tell whether it stands in a transaction block, for the server begins
// a transaction for each one that does not. So one statement sets a value that the
// end of its transaction takes back (PostgreSQL manual, SET LOCAL), and the next
// takes the lock only if it finds that value: then both are in one transaction, on
// one session, whatever pool or pooler stands between.
func TxTry(ctx context.Context, tx Tx, tag namespace.Tag, mode session.Mode) (ok bool, err error) {
	mark := rand.Text()
	var outcome string
	err = tx.QueryRow(ctx, "SELECT pg_catalog.set_config('pglatch.transaction', $1::pg_catalog.text, true)", []any{mark}, &outcome)
	if err != nil {
		return false, err
	}
	shape := shapeOf(tag, mode)
	suffix, params, args := "", "($2::pg_catalog.int8)", []any{mark}
	if shape.shared {
		suffix = "_shared"
	}
	if k1, k2, pair := tag.Pair(); pair {
		params, args = "($2::pg_catalog.int4, $3::pg_catalog.int4)", append(args, k1, k2)
	} else {
		k, _ := tag.Single()
		args = append(args, k)
	}
	err = tx.QueryRow(ctx, "SELECT CASE WHEN pg_catalog.current_setting('pglatch.transaction', true) OPERATOR(pg_catalog.=) $1::pg_catalog.text"+
		" THEN pg_catalog.pg_try_advisory_xact_lock"+suffix+params+"::pg_catalog.text ELSE 'outside' END", args, &outcome)
	if err != nil {
		return false, txError(err)
	}
	if outcome == "outside" {
		return false, errNoTx
	}
	return outcome == "true", nil
}

// TxWait waits for a transaction-scoped lock for one slice. The block's exception
// handler is a savepoint: a wait that runs out leaves the transaction usable, and
// writes nothing to the server's log. lock_timeout is as before in either case.
func TxWait(ctx context.Context, tx Tx, tag namespace.Tag, mode session.Mode, limit time.Duration) (bool, error) {
	suffix, args := literals(tag, mode)
	slice := max(min(limit, maxSlice), time.Millisecond)
	err := tx.Exec(ctx, fmt.Sprintf(`DO $pglatch$
DECLARE
	before pg_catalog.text := pg_catalog.current_setting('lock_timeout');
BEGIN
	PERFORM pg_catalog.set_config('lock_timeout', '%s', true);
	PERFORM pg_catalog.pg_advisory_xact_lock%s(%s);
	PERFORM pg_catalog.set_config('lock_timeout', before, true);
	PERFORM pg_catalog.set_config('pglatch.outcome', 'granted', true);
EXCEPTION WHEN lock_not_available THEN
	PERFORM pg_catalog.set_config('pglatch.outcome', 'refused', true);
END $pglatch$`, ms(slice), suffix, args))
	if err != nil {
		return false, txError(err)
	}
	var outcome string
	err = tx.QueryRow(ctx, "SELECT pg_catalog.current_setting('pglatch.outcome')", nil, &outcome)
	return outcome == "granted", txError(err)
}

func txError(err error) error {
	if sqlState(err) == codeOutOfMemory {
		return lockTableFull(err)
	}
	return err
}
