package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/leader/internal/pgguard"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/leader/shards/driver"
)

// PgxTx is the part of a transaction that Guard needs, as in package leader/postgres.
type PgxTx = postgres.PgxTx

// SQLTx is the part of a transaction that GuardSQL needs, as in package leader/postgres.
type SQLTx = postgres.SQLTx

// A Beginner begins transactions; *pgxpool.Pool and *pgx.Conn implement it.
type Beginner = postgres.Beginner

// A NotLeaderError reports that a guard refused a transaction. Its Election is "shard 7 of tenant=7".
type NotLeaderError = postgres.NotLeaderError

// A PendingError describes the guarded transaction that a claim waits for. Its Election is "shard 7 of
// tenant=7".
type PendingError = postgres.PendingError

// A TxEndedError reports that the function that InTx ran has ended the transaction. It says what
// was committed.
type TxEndedError = postgres.TxEndedError

// ErrNoTransaction means that the argument of Guard or GuardSQL is not in a transaction: nothing is guarded.
var ErrNoTransaction = postgres.ErrNoTransaction

// ErrReadOnly means that a guard got a read-only transaction, which it cannot use, because it locks the
// shard's row. The transaction is aborted. The error does not depend on the term.
var ErrReadOnly = postgres.ErrReadOnly

// Bind implements driver.Binder: it adds to the context of a shard's work the values that Guard and InTx
// need.
func (o *lockSession) Bind(ctx context.Context, g driver.Grant) context.Context {
	return pgguard.With(ctx, &pgguard.Token{
		Election: "shard " + g.Name + " of " + o.backend.config.Namespace.String(), Term: g.Term,
		Statements: o.backend.guards, Args: o.guardArgs(g),
	})
}

// Guard lets the transaction continue only if no later term of the shard has begun. None can begin until the
// transaction has ended. So the transaction commits before any later term begins, or not at all.
//
// ctx is the context of the shard's work, or derived from it. The transaction must be on the database of the
// shards. It may use any connection, even through a transaction pooler. It needs SELECT and UPDATE on the
// table of terms, whose row Guard locks FOR SHARE. If the transaction is read-only, the error is ErrReadOnly.
//
// If a later term has begun, Guard returns a *NotLeaderError, which matches leader.ErrNotLeader, and the
// transaction is aborted: it cannot write any more. The same happens if ctx is not the context of a shard's
// work, or has ended with the ownership. It also happens in another database, even if that has a shard of the
// same name and term.
//
// As long as ctx has not ended, Guard succeeds until the next term begins, and the next term waits for the
// transaction. In repeatable read and serializable, a term that has ended since the transaction's snapshot can
// also cause a serialization failure.
//
// In all other respects, it behaves like Guard of package leader/postgres: in savepoints, outside of
// transactions, and in the timeouts that it sets, so that a stopped node does not block the shard.
func Guard(ctx context.Context, tx PgxTx) error { return postgres.Guard(ctx, tx) }

// GuardSQL is Guard for database/sql.
func GuardSQL(ctx context.Context, tx SQLTx) error { return postgres.GuardSQL(ctx, tx) }

// InTx runs fn in a transaction that commits only if the shard's term lasts. It guards before fn runs, and
// again with the last statement before the commit. It behaves like InTx of package leader/postgres and
// returns its errors.
func InTx(ctx context.Context, pool Beginner, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return postgres.InTx(ctx, pool, fn)
}

// InTxOptions is InTx with an isolation level or other transaction options.
func InTxOptions(ctx context.Context, pool Beginner, options pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return postgres.InTxOptions(ctx, pool, options, fn)
}

// InSQLTx is InTx for database/sql. The driver rolls the transaction back when ctx ends.
func InSQLTx(ctx context.Context, db *sql.DB, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return postgres.InSQLTx(ctx, db, fn)
}

// InSQLTxOptions is InSQLTx with an isolation level; nil = the driver's defaults.
func InSQLTxOptions(ctx context.Context, db *sql.DB, options *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return postgres.InSQLTxOptions(ctx, db, options, fn)
}
