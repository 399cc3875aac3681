// Package txguard guards transactions of the caller's: those of elections, shards and leases, for pgx and
// database/sql. A guard lets a transaction commit only while a right lasts.
//
// The packages on top of it say in SQL how a right is checked and kept: NewStatements. This package sends the
// statements, aborts what must not commit, and finds out whether there is a transaction at all.
package txguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// A Guard guards transactions for one right.
type Guard struct {
	Package    string // whose contract the errors are about
	Right      string // "1:100 in term 1.1"
	Statements *Statements
	Args       []any // parameters of the statements, from $2 on
	// Closing returns those of the last guard of a transaction, if it is one of NewClosing. nil = Args.
	Closing func() []any
	// Failed types an error: a *RefusedError, ErrReadOnly, the causes of a context that has ended, or the
	// driver's.
	Failed func(err error) error
}

// Guard lets the transaction continue if the right lasts, which then lasts until the transaction has ended.
// After an error the transaction is aborted, or it is none.
func (g Guard) Guard(ctx context.Context, tx pgsession.Tx) error {
	return g.typed(ctx, tx, func() error { return pgsession.TxExec(ctx, tx, g.Statements.alone, g.Args...) })
}

// first is Guard at the start of a transaction, which it marks. again later requires that mark.
func (g Guard) first(ctx context.Context, tx pgsession.Tx, mark string) error {
	return g.typed(ctx, tx, func() error { return pgsession.TxSend(ctx, tx, g.Statements.first, append([]any{mark}, g.Args...)...) })
}

// again is Guard at the end of a transaction. It returns a *TxEndedError if there is no transaction, or one
// without that mark.
func (g Guard) again(ctx context.Context, tx pgsession.Tx, mark string) error {
	var ended *TxEndedError
	args := g.Args
	if g.Closing != nil {
		args = g.Closing()
	}
	err := g.typed(ctx, tx, func() error {
		err := pgsession.TxSend(ctx, tx, g.Statements.again, append([]any{mark}, args...)...)
		switch {
		case err != nil && strings.Contains(err.Error(), endedRefusal):
			ended = &TxEndedError{Package: g.Package, Right: g.Right}
		case ctx.Err() == nil && (errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, sql.ErrTxDone)): // else the driver ended it with ctx
			ended = &TxEndedError{Package: g.Package, Right: g.Right, Cause: err}
		}
		return err
	})
	if ended != nil {
		return ended
	}
	return err
}

// typed sends a guard, and types its error.
func (g Guard) typed(ctx context.Context, tx pgsession.Tx, send func() error) error {
	err := Sent(ctx, tx, send)
	if err == nil {
		return nil
	}
	if refused := refusedBy(err); refused != nil {
		return g.Failed(refused)
	}
	if ctx.Err() == nil {
		err = ReadOnly(err)
	}
	return g.Failed(err)
}

// Sent sends statements in a transaction, and aborts it if ctx ended before the last answer. The error is then
// the context's cause.
func Sent(ctx context.Context, tx pgsession.Tx, send func() error) error {
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), Abort(ctx, tx))
	}
	err := send()
	if err != nil && ctx.Err() != nil && refusedBy(err) == nil {
		err = fmt.Errorf("%w: %v", context.Cause(ctx), err) //nolint:errorlint // its own kind, such as safe to try again, misleads
		_ = Abort(ctx, tx)                                  // fails if the driver has ended the connection, and with it the transaction
	}
	return err
}

// refusedBy finds a refusal in the text of an error; nil = there is none.
func refusedBy(err error) error {
	if sqlstate.Of(err) != sqlstate.InvalidText {
		return nil
	}
	_, reason, ok := strings.Cut(err.Error(), Refusal)
	if !ok {
		return nil
	}
	reason, _, _ = strings.Cut(reason, `"`)
	return &RefusedError{reason}
}

// lingerBound limits how long a transaction may take to end after its context has ended.
const lingerBound = 5 * time.Second

// linger returns a context that ends lingerBound after ctx.
func linger(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lingerBound, cancel) })
	return longer, func() { stop(); cancel() }
}

// Abort makes the server abort the transaction, even if ctx has ended. If there is none, Abort changes nothing.
func Abort(ctx context.Context, tx pgsession.Tx) error {
	ctx, cancel := linger(ctx)
	defer cancel()
	err := tx.Exec(ctx, "SELECT '"+Refusal+"aborted'::pg_catalog.int4")
	if sqlstate.Of(err) != "" {
		return nil // aborted, by this statement or before
	}
	return err
}
