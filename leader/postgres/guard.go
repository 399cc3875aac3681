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

// A PgxTx is what Guard needs of a transaction; pgx.Tx has it. Pools and connections
// have it too, and are refused with ErrNoTransaction.
type PgxTx = pgsession.PgxTx

// A SQLTx is what GuardSQL needs of a transaction; *sql.Tx has it, and so have the
// transactions of libraries on top of it: no arguments are sent, so that it does not
// matter what placeholders they have. *sql.DB and *sql.Conn have it too, and are refused
// with ErrNoTransaction.
type SQLTx = pgsession.SQLTx

// Bind adds to a leader's context what Guard and InTx need.
func (b *Backend) Bind(ctx context.Context) context.Context {
	return pgguard.With(ctx, b.token)
}

// Guard lets the transaction go on only if the term of ctx, a leader's context or
// one made from it, still leads, and will until the transaction has ended: a
// successor waits for that. The transaction is on the election's database, by any
// connection, also through a transaction pooler.
//
// So that a leader that dies or stops halfway does not hold a takeover up, Guard also
// sets for the transaction, and keeps what is shorter: idle_in_transaction_session_timeout
// to the duration of the lease T; client_connection_check_interval, where the server's
// platform has it, to T/4 or a second, so that the server notices during a statement
// that the client has gone; and tcp_keepalives_idle, _interval (T/4, in whole seconds)
// and _count (3), so that it notices that the network has (PostgreSQL manual, sections
// 20.11.1 and 20.3.2).
//
// If the term has ended, Guard returns a *NotLeaderError and the transaction is
// aborted: it cannot write any more. It does the same if ctx is not of a leader.
// If ctx ended for another reason, its cause is returned, and the transaction is
// aborted too. Any other error is the driver's.
//
// Call Guard outside of savepoints, because a rollback to a savepoint that is
// older than the guard takes it back. InTx sees to that.
//
// What is not in a transaction is refused with ErrNoTransaction, whatever its type: a
// pool, a connection, a wrapper of one, a transaction that has sent COMMIT. It is the
// server that is asked, by a second statement, which reads a setting that the first one
// made for its transaction (PostgreSQL manual, SET LOCAL). Nothing is guarded then, and
// what such a connection writes after is not either. A connection that has sent BEGIN is
// in a transaction.
func Guard(ctx context.Context, tx PgxTx) error { return guard(ctx, pgsession.FromPgx(tx)) }

// GuardSQL is Guard for database/sql.
func GuardSQL(ctx context.Context, tx SQLTx) error { return guard(ctx, pgsession.FromSQL(tx)) }

// electionGuard takes the barrier and tries an incarnation, both shared and for the
// transaction. Order matters: who has the barrier when it sees the incarnation
// held is waited for by whoever takes over later.
const electionGuard = `WHEN NOT pg_catalog.pg_try_advisory_xact_lock_shared($2::pg_catalog.int8) THEN '` + pgguard.UnderWay + `'
	WHEN pg_catalog.pg_try_advisory_xact_lock_shared($3::pg_catalog.int8) THEN '` + pgguard.TermOver + `'`

var electionGuards = pgguard.NewStatements(electionGuard, 3)

// guarding is what guards of the term take and set. barrier is the lock that they share.
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

// guardBy guards a transaction in one of the ways that there are, if ctx is of a term.
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
		_ = abort(ctx, tx) // it fails where the driver has ended the connection, and so the transaction
		return ended(t, errors.Join(context.Cause(ctx), err))
	case sqlstate.Of(err) == sqlstate.ReadOnly:
		err = fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	if txEnded, ok := errors.AsType[*TxEndedError](err); ok {
		return txEnded
	}
	return fmt.Errorf("leader: guard of %s: %w", t.Election, err)
}

// ended is the error for a context that ended for a reason.
func ended(t *pgguard.Token, cause error) error {
	if errors.Is(cause, driver.ErrLost) || errors.Is(cause, driver.ErrReleased) || errors.Is(cause, driver.ErrNotLeader) {
		return &NotLeaderError{t.Election, t.Term, cause}
	}
	return fmt.Errorf("leader: guard of %s: %w", t.Election, cause)
}

// lingerBound is how long the end of a transaction may take after the end of its
// context.
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
