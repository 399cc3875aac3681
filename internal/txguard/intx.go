package txguard

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgsession"
)

// A Beginner begins transactions; *pgxpool.Pool and *pgx.Conn implement it.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// InTx runs fn in a transaction that commits only if the right lasts. It guards twice: first, and again just
// before the commit, outside of all savepoints.
func (g Guard) InTx(ctx context.Context, pool Beginner, options pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	tx, err := pool.BeginTx(ctx, options)
	if err != nil {
		return g.beginError(ctx, err)
	}
	end, cancel := linger(ctx)
	defer cancel()
	defer func() { _ = tx.Rollback(end) }() // after a commit it does nothing
	if err := g.around(ctx, pgsession.FromPgx(tx), func() error { return fn(ctx, tx) }); err != nil {
		return err
	}
	return g.commitError(tx.Commit(end))
}

// InSQLTx is InTx for database/sql. The driver rolls the transaction back when ctx ends.
func (g Guard) InSQLTx(ctx context.Context, db *sql.DB, options *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, options)
	if err != nil {
		return g.beginError(ctx, err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := g.around(ctx, pgsession.FromSQL(tx), func() error { return fn(ctx, tx) }); err != nil {
		return err
	}
	return g.commitError(tx.Commit())
}

// around runs work between two guards of one transaction. It returns a *TxEndedError if work ended the
// transaction. It marks the transaction on the server, because the driver notices only its own Commit and
// Rollback. To the driver, a COMMIT followed by a new BEGIN makes no difference.
func (g Guard) around(ctx context.Context, tx pgsession.Tx, work func() error) error {
	mark := rand.Text()
	if err := g.first(ctx, tx, mark); err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	return g.again(ctx, tx, mark)
}

// beginError has the reason why the right has ended, if ctx knows it.
func (g Guard) beginError(ctx context.Context, err error) error {
	err = fmt.Errorf("begin: %w", err)
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return g.Failed(err)
}

func (g Guard) commitError(err error) error {
	if err != nil {
		return fmt.Errorf("%s: commit: %w", g.Package, err)
	}
	return nil
}
