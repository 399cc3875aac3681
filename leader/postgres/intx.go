package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// A Beginner begins transactions; *pgxpool.Pool and *pgx.Conn have it.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// InTx runs fn in a transaction that commits only if the term of ctx still leads.
// It guards first, so that a term that has ended does no work, and again as the
// last statement before the commit, outside of all savepoints. fn may use
// savepoints (tx.Begin); it neither commits nor rolls back tx.
//
// The error is fn's, of which the transaction is rolled back as it is by a panic,
// or Guard's, or the commit's. A commit whose connection failed can have taken
// effect, under this term, like any commit.
func InTx(ctx context.Context, pool Beginner, fn func(ctx context.Context, tx pgx.Tx) error) error {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		return beginError(ctx, err)
	}
	end, cancel := linger(ctx)
	defer cancel()
	defer func() { _ = tx.Rollback(end) }() // after a commit it does nothing
	if err := Guard(ctx, tx); err != nil {
		return err
	}
	if err := fn(ctx, tx); err != nil {
		return err
	}
	if err := Guard(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(end); err != nil {
		return fmt.Errorf("leader: commit: %w", err)
	}
	return nil
}

// InSQLTx is InTx for database/sql, whose transactions are rolled back when ctx
// ends.
func InSQLTx(ctx context.Context, db *sql.DB, fn func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return beginError(ctx, err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := GuardSQL(ctx, tx); err != nil {
		return err
	}
	if err := fn(ctx, tx); err != nil {
		return err
	}
	if err := GuardSQL(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("leader: commit: %w", err)
	}
	return nil
}

// beginError says why the term has ended, if it has.
func beginError(ctx context.Context, err error) error {
	err = fmt.Errorf("leader: begin: %w", err)
	if t, _ := ctx.Value(tokenKey{}).(*token); t != nil && ctx.Err() != nil {
		return t.ended(errors.Join(context.Cause(ctx), err))
	}
	return err
}
