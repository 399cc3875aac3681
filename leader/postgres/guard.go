package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/pgguard"
	"github.com/pglatch/pglatch/namespace"
)

// A PgxTx is the part of a transaction that Guard needs; pgx.Tx implements it. Pools and connections
// implement it too, but Guard refuses them with ErrNoTransaction.
type PgxTx = pgsession.PgxTx

// A SQLTx is the part of a transaction that GuardSQL needs. *sql.Tx implements it, and so do the transactions
// of libraries on top of it. GuardSQL sends no arguments, so their placeholder style does not matter. *sql.DB
// and *sql.Conn implement it too, but GuardSQL refuses them with ErrNoTransaction.
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
// A leader that dies or stops halfway should not delay a takeover. So Guard also sets these limits for the
// transaction, and keeps shorter ones (PostgreSQL manual, sections 20.11.1 and 20.3.2):
//
//   - idle_in_transaction_session_timeout: the duration of the lease T
//   - client_connection_check_interval, where the server's platform has it: T/4 or a second. The server then
//     notices during a statement that the client has gone.
//   - tcp_keepalives_idle and _interval (T/4, in whole seconds) and _count (3): the server then notices that
//     the network has gone.
//
// If the term has ended, Guard returns a *NotLeaderError and the transaction is aborted: it cannot write any
// more. The same happens if ctx is not derived from a leader's context. If ctx ended for another reason,
// Guard returns its cause, and the transaction is aborted too. Any other error is the driver's.
//
// Call Guard outside of savepoints, because a rollback to a savepoint older than the guard undoes the guard.
// InTx takes care of that.
//
// Guard refuses anything outside of a transaction with ErrNoTransaction, whatever its type: a pool, a
// connection, a wrapper of one, or a transaction that has sent COMMIT. A second statement checks this on the
// server: it reads a setting that the first one made for its transaction (PostgreSQL manual, SET LOCAL).
// After this error nothing is guarded, including later writes on such a connection. A connection that has
// sent BEGIN is in a transaction.
func Guard(ctx context.Context, tx PgxTx) error { return guard(ctx, pgsession.FromPgx(tx)) }

// GuardSQL is Guard for database/sql.
func GuardSQL(ctx context.Context, tx SQLTx) error { return guard(ctx, pgsession.FromSQL(tx)) }

// electionGuard takes the barrier and then tries an incarnation, both shared and for the transaction. The
// order matters: a guard that has the barrier when it sees the incarnation held makes every later takeover
// wait.
const electionGuard = `WHEN NOT pg_catalog.pg_try_advisory_xact_lock_shared($2::pg_catalog.int8) THEN '` + pgguard.UnderWay + `'
	WHEN pg_catalog.pg_try_advisory_xact_lock_shared($3::pg_catalog.int8) THEN '` + pgguard.TermOver + `'`

var electionGuards = pgguard.NewStatements(electionGuard, 3)

// guarding returns the locks and settings of the term's guards. barrier is the lock that they share.
func (t *lockSession) guarding(barrier namespace.Tag, ttl time.Duration) pgguard.Guarding {
	b, _ := barrier.Single()
	i, _ := t.incarnation.Single()
	return pgguard.Guarding{
		Statements: electionGuards,
		Args:       []any{b, i},
		Patience:   pgguard.Patience{Idle: ttl, Checks: t.session.Checks()},
	}
}

var errNoTerm = errors.New("the context is not of a leader: use the one that the election gives to its work")

func guard(ctx context.Context, tx pgsession.Tx) error {
	return guardBy(ctx, tx, func(g pgguard.Guarding) error { return pgguard.Guard(ctx, tx, g) })
}

// guardBy guards a transaction with way, if ctx belongs to a term.
func guardBy(ctx context.Context, tx pgsession.Tx, way func(pgguard.Guarding) error) error {
	t := pgguard.Of(ctx)
	if t == nil {
		return errors.Join(&NotLeaderError{Cause: errNoTerm}, abort(ctx, tx))
	}
	if ctx.Err() != nil {
		return errors.Join(ended(t, context.Cause(ctx)), abort(ctx, tx))
	}
	err := way(t.Guarding)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgguard.ErrRefused):
		return &NotLeaderError{t.Election, t.Term, err}
	case ctx.Err() != nil:
		_ = abort(ctx, tx) // fails if the driver has ended the connection, and with it the transaction
		return ended(t, errors.Join(context.Cause(ctx), err))
	case sqlstate.Of(err) == sqlstate.ReadOnly:
		err = fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	if txEnded, ok := errors.AsType[*TxEndedError](err); ok {
		return txEnded
	}
	return fmt.Errorf("leader: guard of %s: %w", t.Election, err)
}

// ended returns the error for a context that has ended with cause.
func ended(t *pgguard.Token, cause error) error {
	if errors.Is(cause, driver.ErrLost) || errors.Is(cause, driver.ErrReleased) || errors.Is(cause, driver.ErrNotLeader) {
		return &NotLeaderError{t.Election, t.Term, cause}
	}
	return fmt.Errorf("leader: guard of %s: %w", t.Election, cause)
}

// lingerBound limits how long a transaction may take to end after its context has ended.
const lingerBound = 5 * time.Second

// linger returns a context that ends lingerBound after ctx.
func linger(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lingerBound, cancel) })
	return longer, func() { stop(); cancel() }
}

func abort(ctx context.Context, tx pgsession.Tx) error {
	ctx, cancel := linger(ctx)
	defer cancel()
	if err := pgguard.Abort(ctx, tx); err != nil {
		return fmt.Errorf("aborting the transaction: %w", err)
	}
	return nil
}
