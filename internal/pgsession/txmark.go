package pgsession

import (
	"context"
	"crypto/rand"
	"strings"
)

// What is for the transaction is taken by two statements. The first takes it and leaves
// what came of it in a setting that ends with its transaction (PostgreSQL manual, SET
// LOCAL). The second, which is always the same text, reads it. So if the two are not in
// one transaction, on one session, whatever pool or pooler stands between, the answer is
// missing; and then what was taken was given back at the end of the first. (No query can
// tell whether it stands in a transaction block: the server begins a transaction for each
// one that does not.)

const (
	// SetMark leaves the mark of a TxExec, in its statement.
	SetMark    = `pg_catalog.set_config('pglatch.outcome', $1::pg_catalog.text, true)`
	outcomeSQL = `SELECT coalesce(pg_catalog.current_setting('pglatch.outcome', true), '')`
)

// TxExec runs a statement that has SetMark and in which $1 is the mark, and sees to it
// that it was in a transaction: if not, the error matches session.ErrNoTransaction, and
// what the statement did is already committed, and its locks are free.
func TxExec(ctx context.Context, tx Tx, sql string, args ...any) error {
	mark := rand.Text()
	if err := tx.Exec(ctx, sql, append([]any{mark + ":"}, args...)...); err != nil {
		return txError(err)
	}
	_, err := txOutcome(ctx, tx, mark)
	return err
}

// txOutcome reads what a statement left behind the mark in this transaction.
func txOutcome(ctx context.Context, tx Tx, mark string) (outcome string, err error) {
	if err := tx.QueryRow(ctx, outcomeSQL, nil, &outcome); err != nil {
		return "", txError(err)
	}
	outcome, ok := strings.CutPrefix(outcome, mark+":")
	if !ok {
		return "", errNoTx
	}
	return outcome, nil
}
