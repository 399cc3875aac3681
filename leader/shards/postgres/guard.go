package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/leader/internal/pgguard"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/leader/shards/driver"
)

// PgxTx is what Guard needs of a transaction, as in package leader/postgres.
type PgxTx = postgres.PgxTx

// SQLTx is what GuardSQL needs of a transaction, as in package leader/postgres.
type SQLTx = postgres.SQLTx

// A Beginner begins transactions; *pgxpool.Pool and *pgx.Conn have it.
type Beginner = postgres.Beginner

// A NotLeaderError says that a guard refused a transaction. Its Election is "shard 7 of tenant=7".
type NotLeaderError = postgres.NotLeaderError

// A PendingError says which guarded transaction a claim waits for. Its Election is "shard 7 of tenant=7".
type PendingError = postgres.PendingError

// A TxEndedError says that the function that InTx ran ended the transaction. Its Election is "shard 7 of tenant=7".
type TxEndedError = postgres.TxEndedError

// ErrNoTransaction says that what Guard or GuardSQL got is not in a transaction: nothing is guarded.
var ErrNoTransaction = postgres.ErrNoTransaction

// ErrReadOnly says that a guard got a read-only transaction, which is aborted: a guard locks the shard's row. It says nothing
// about the term.
var ErrReadOnly = postgres.ErrReadOnly

// Bind implements driver.Binder: it adds to the context of a shard's work what Guard and InTx need.
func (o *lockSession) Bind(ctx context.Context, g driver.Grant) context.Context {
	return pgguard.With(ctx, &pgguard.Token{
		Election: "shard " + g.Name + " of " + o.backend.config.Namespace.String(), Term: g.Term, Guarding: o.guarding(g),
	})
}

// Guard lets the transaction go on only if no later term of the shard has begun, and none can until it has ended:
// it commits before any later term begins, or not at all. ctx is that of the shard's work, or made from
// it; the transaction is on the database of the shards, by any connection, also through a transaction pooler. It needs
// SELECT and UPDATE on the table of terms, whose row it locks FOR SHARE: ErrReadOnly if the transaction is read-only.
//
// If the term has ended, Guard returns a *NotLeaderError, which matches leader.ErrNotLeader, and the transaction is aborted: it cannot write any more. The same if ctx is
// not of a shard, or has ended with the ownership. In repeatable read and serializable a term that ended since the transaction's
// snapshot can also be a serialization failure.
//
// In all other respects, what it sets so that a node that stops halfway does not hold the shard up, savepoints, what is no transaction, it is as
// Guard of package leader/postgres.
func Guard(ctx context.Context, tx PgxTx) error { return postgres.Guard(ctx, tx) }

// GuardSQL is Guard for database/sql.
func GuardSQL(ctx context.Context, tx SQLTx) error { return postgres.GuardSQL(ctx, tx) }

// InTx runs fn in a transaction that commits only if the shard's term lasts: it guards first, and again as the last
// statement before the commit. It is InTx of package leader/postgres, with its errors.
func InTx(ctx context.Context, pool Beginner, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return postgres.InTx(ctx, pool, fn)
}

// InTxOptions is InTx with an isolation level or other options of the transaction.
func InTxOptions(ctx context.Context, pool Beginner, options pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return postgres.InTxOptions(ctx, pool, options, fn)
}

// InSQLTx is InTx for database/sql, whose transactions are rolled back when ctx ends.
func InSQLTx(ctx context.Context, db *sql.DB, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return postgres.InSQLTx(ctx, db, fn)
}

// InSQLTxOptions is InSQLTx with an isolation level; nil = the driver's defaults.
func InSQLTxOptions(ctx context.Context, db *sql.DB, options *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return postgres.InSQLTxOptions(ctx, db, options, fn)
}
