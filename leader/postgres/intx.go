package postgres

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/leader/internal/pgguard"
)

// A Beginner begins transactions; *pgxpool.Pool and *pgx.Conn implement it.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// InTx runs fn in a transaction that commits only if the term of ctx still leads. It guards twice, with one
// statement each: first, so that a term that has ended does no work, and again just before the commit,
// outside of all savepoints. These statements also check that the transaction is still the one that InTx
// began. fn may use savepoints (tx.Begin). It must neither commit nor roll back tx, nor reset its settings
// (RESET ALL).
//
// The error is one of these:
//
//   - fn's: the transaction is rolled back, as it is after a panic
//   - Guard's
//   - the commit's: if its connection failed, the commit can have taken effect, under this term, like any
//     commit
//   - a *TxEndedError, if fn ended the transaction despite the rule above
func InTx(ctx context.Context, pool Beginner, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return InTxOptions(ctx, pool, pgx.TxOptions{}, fn)
}

// InTxOptions is InTx with an isolation level, an access mode or other transaction options.
func InTxOptions(ctx context.Context, pool Beginner, options pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	tx, err := pool.BeginTx(ctx, options)
	if err != nil {
		return beginError(ctx, err)
	}
	end, cancel := linger(ctx)
	defer cancel()
	defer func() { _ = tx.Rollback(end) }() // after a commit it does nothing
	if err := between(ctx, pgsession.FromPgx(tx), func() error { return fn(ctx, tx) }); err != nil {
		return err
	}
	if err := tx.Commit(end); err != nil {
		return fmt.Errorf("leader: commit: %w", err)
	}
	return nil
}

// InSQLTx is InTx for database/sql. The driver rolls the transaction back when ctx ends.
func InSQLTx(ctx context.Context, db *sql.DB, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return InSQLTxOptions(ctx, db, nil, fn)
}

// InSQLTxOptions is InSQLTx with an isolation level or an access mode; nil = the
// driver's defaults.
func InSQLTxOptions(ctx context.Context, db *sql.DB, options *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, options)
	if err != nil {
		return beginError(ctx, err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := between(ctx, pgsession.FromSQL(tx), func() error { return fn(ctx, tx) }); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("leader: commit: %w", err)
	}
	return nil
}

// between runs work between two guards of one transaction. It returns an error if work ended the transaction.
// It marks the transaction on the server, because the driver notices only its own Commit and Rollback. To the
// driver, a COMMIT followed by a new BEGIN makes no difference.
func between(ctx context.Context, tx pgsession.Tx, work func() error) error {
	mark := rand.Text()
	if err := guardBy(ctx, tx, func(g pgguard.Guarding) error { return pgguard.GuardFirst(ctx, tx, g, mark) }); err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	return guardBy(ctx, tx, func(g pgguard.Guarding) error {
		err := pgguard.GuardAgain(ctx, tx, g, mark)
		txEnded := &TxEndedError{Election: pgguard.Of(ctx).Election, Term: pgguard.Of(ctx).Term}
		switch {
		case errors.Is(err, pgguard.ErrTxEnded):
			return txEnded
		case errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone):
			txEnded.Cause = err
			return txEnded
		}
		return err
	})
}

// beginError returns why the term has ended, if it has.
func beginError(ctx context.Context, err error) error {
	err = fmt.Errorf("leader: begin: %w", err)
	if t := pgguard.Of(ctx); t != nil && ctx.Err() != nil {
		return ended(t, errors.Join(context.Cause(ctx), err))
	}
	return err
}
