package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/txguard"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/pgguard"
	"github.com/pglatch/pglatch/namespace"
)

// A Beginner begins transactions; *pgxpool.Pool and *pgx.Conn implement it.
type Beginner = txguard.Beginner

// A PgxTx is the part of a transaction that Guard needs; pgx.Tx implements it. Pools and connections
// implement it too, but Guard refuses them with ErrNoTransaction.
type PgxTx = pgsession.PgxTx

// A SQLTx is the part of a transaction that GuardSQL needs. *sql.Tx implements it, and so do the transactions
// of libraries built on it. GuardSQL sends no arguments, so the library's placeholder style does not matter.
// *sql.DB and *sql.Conn implement SQLTx too, but GuardSQL refuses them with ErrNoTransaction.
type SQLTx = pgsession.SQLTx

// Bind adds to a leader's context the values that Guard and InTx need.
func (b *Backend) Bind(ctx context.Context) context.Context {
	return pgguard.With(ctx, b.token)
}

// Guard lets the transaction continue only if the term of ctx still leads. ctx is a leader's context or one
// derived from it. The term then leads until the transaction has ended, because a successor waits for that.
// The transaction must be on the election's database. It may use any connection, also through a transaction
// pooler.
//
// A leader that dies or stops in the middle of a transaction should not delay a takeover. So Guard also
// sets these limits for the transaction, and keeps any shorter limits that are set (PostgreSQL manual,
// sections 20.11.1 and 20.3.2):
//
//   - idle_in_transaction_session_timeout: the duration of the lease T
//   - client_connection_check_interval, where the server's platform has it: T/4 or a second, whichever is less.
//     With it, the server notices during a statement that the client has gone.
//   - tcp_keepalives_idle and _interval (T/4, in whole seconds) and _count (3): with them, the server
//     notices that the network has gone.
//
// If the term has ended, Guard returns a *NotLeaderError, and PostgreSQL has aborted the transaction: it
// cannot write any more. The same happens if ctx is not derived from a leader's context. If ctx ended for
// another reason, Guard returns its cause, and the transaction is aborted too. Any other error is the
// driver's.
//
// Call Guard outside of savepoints, because a rollback to a savepoint older than the guard undoes the guard.
// InTx takes care of that.
//
// If tx is not in a transaction, Guard returns ErrNoTransaction, whatever the type of tx: a pool, a
// connection, a wrapper of one, or a transaction that has sent COMMIT. A second statement checks this on the
// server: it reads a setting that the first one made for its transaction (PostgreSQL manual, SET LOCAL).
// After this error nothing is guarded, and neither are later writes on such a connection. A connection that
// has sent BEGIN is in a transaction.
func Guard(ctx context.Context, tx PgxTx) error {
	return guardOf(ctx).Guard(ctx, pgsession.FromPgx(tx))
}

// GuardSQL is Guard for database/sql.
func GuardSQL(ctx context.Context, tx SQLTx) error {
	return guardOf(ctx).Guard(ctx, pgsession.FromSQL(tx))
}

// InTx runs fn in a transaction that commits only if the term of ctx still leads. It guards twice, with one
// statement each. The first guard, before fn, ensures that a term that has ended does no work. The second
// is the last statement before the commit, outside of all savepoints. These statements also check that the
// transaction is still the one that InTx began. fn may use savepoints (tx.Begin). It must neither commit
// nor roll back tx, nor reset its settings (RESET ALL).
//
// The error is one of these:
//
//   - the error of fn: the transaction is rolled back, as it is after a panic
//   - an error of Guard
//   - the error of the commit: if its connection failed, the commit can have taken effect, under this
//     term, like any commit
//   - a *TxEndedError, if fn ended the transaction despite the rule above
func InTx(ctx context.Context, pool Beginner, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return InTxOptions(ctx, pool, pgx.TxOptions{}, fn)
}

// InTxOptions is InTx with an isolation level, an access mode or other transaction options.
func InTxOptions(ctx context.Context, pool Beginner, options pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return guardOf(ctx).InTx(ctx, pool, options, fn)
}

// InSQLTx is InTx for database/sql. The driver rolls the transaction back when ctx ends.
func InSQLTx(ctx context.Context, db *sql.DB, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return InSQLTxOptions(ctx, db, nil, fn)
}

// InSQLTxOptions is InSQLTx with an isolation level or an access mode; nil = the
// driver's defaults.
func InSQLTxOptions(ctx context.Context, db *sql.DB, options *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return guardOf(ctx).InSQLTx(ctx, db, options, fn)
}

// electionGuard takes the barrier and then tries an incarnation, both shared and for the transaction. The
// order matters: a guard that has the barrier when it sees the incarnation held makes every later takeover
// wait.
const electionGuard = `WHEN NOT pg_catalog.pg_try_advisory_xact_lock_shared($2::pg_catalog.int8) THEN '` + pgguard.UnderWay + `'
	WHEN pg_catalog.pg_try_advisory_xact_lock_shared($3::pg_catalog.int8) THEN '` + pgguard.TermOver + `'`

var electionGuards = txguard.NewStatements(electionGuard, 3)

// guardArgs returns the parameters of the term's guards. barrier is the lock that they share.
func (t *lockSession) guardArgs(barrier namespace.Tag, ttl time.Duration) []any {
	b, _ := barrier.Single()
	i, _ := t.incarnation.Single()
	return append([]any{b, i}, txguard.Limits{Idle: ttl, Checks: t.session.Checks()}.Args()...)
}

var errNoTerm = errors.New("the context is not of a leader: use the one that the election gives to its work")

// noTerm is the guard of a context that belongs to no term. It refuses every transaction.
var noTerm = txguard.Guard{
	Package: "leader", Statements: txguard.NewOwnStatements("WHEN true THEN '" + pgguard.TermOver + "'"),
	Failed: func(err error) error {
		if _, refused := errors.AsType[*txguard.RefusedError](err); refused {
			err = nil
		}
		err = errors.Join(errNoTerm, err)
		return &NotLeaderError{Cause: err}
	},
}

// guardOf returns the guard of the term that ctx belongs to.
func guardOf(ctx context.Context) txguard.Guard {
	t := pgguard.Of(ctx)
	if t == nil {
		return noTerm
	}
	return txguard.Guard{
		Package: "leader", Right: fmt.Sprintf("%s in term %v", t.Election, t.Term), Statements: t.Statements, Args: t.Args,
		Failed: func(err error) error {
			_, refused := errors.AsType[*txguard.RefusedError](err)
			if refused || errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrReleased) || errors.Is(err, driver.ErrNotLeader) {
				return &NotLeaderError{t.Election, t.Term, err}
			}
			return fmt.Errorf("leader: guard of %s: %w", t.Election, err)
		},
	}
}
