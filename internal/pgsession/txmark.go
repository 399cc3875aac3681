package pgsession

import "context"

// TxMark marks the transaction. The mark ends with it, as every setting that is made
// with SET LOCAL does (PostgreSQL manual, SET), and no savepoint made later takes it back.
func TxMark(ctx context.Context, tx Tx, mark string) error {
	var set string
	return txError(tx.QueryRow(ctx, `SELECT pg_catalog.set_config('pglatch.guarded', $1::pg_catalog.text, true)`, []any{mark}, &set))
}

// TxMarked reports whether it is still the transaction with that mark.
func TxMarked(ctx context.Context, tx Tx, mark string) (same bool, err error) {
	err = tx.QueryRow(ctx, `SELECT coalesce(pg_catalog.current_setting('pglatch.guarded', true) OPERATOR(pg_catalog.=) $1::pg_catalog.text, false)`,
		[]any{mark}, &same)
	return same, txError(err)
}
