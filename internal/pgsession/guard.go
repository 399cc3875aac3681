package pgsession

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/pglatch/pglatch/namespace"
)

// ErrRefused says that a guard refused a transaction, which is aborted.
var ErrRefused = errors.New("refused by the guard")

const (
	codeInvalidText = "22P02"
	refusal         = "pglatch: not the leader"
)

// guardSQL takes the barrier and tries an incarnation, both shared and for the
// transaction. Order matters: who has the barrier when it sees the incarnation
// held is waited for by whoever takes over later. A refusal is text that is no
// number, so that the server aborts the transaction; the conversion is not folded,
// because the text depends on volatile functions, and it is no cast, because a
// database can have a lenient one of its own from text to int4.
const guardSQL = `SELECT pg_catalog.int4in(pg_catalog.textout(CASE
	WHEN NOT pg_catalog.pg_try_advisory_xact_lock_shared($1::pg_catalog.int8) THEN '` + refusal + `: a takeover is under way'
	WHEN pg_catalog.pg_try_advisory_xact_lock_shared($2::pg_catalog.int8) THEN '` + refusal + `: the term has ended'
	WHEN pg_catalog.set_config('idle_in_transaction_session_timeout', CASE
		WHEN pg_catalog.current_setting('idle_in_transaction_session_timeout')::pg_catalog.interval OPERATOR(pg_catalog.>) '0'::pg_catalog.interval
			AND pg_catalog.current_setting('idle_in_transaction_session_timeout')::pg_catalog.interval OPERATOR(pg_catalog.<=) $3::pg_catalog.text::pg_catalog.interval
		THEN pg_catalog.current_setting('idle_in_transaction_session_timeout')
		ELSE $3::pg_catalog.text END, true) IS NULL THEN '0'
	ELSE '1' END))`

// TxGuard lets the transaction go on if the incarnation is held, and holds the
// barrier until its end; its session may then be idle for at most limit at a time.
// An error that matches ErrRefused says why not; the transaction is aborted then.
func TxGuard(ctx context.Context, tx Tx, barrier, incarnation namespace.Tag, limit time.Duration) error {
	b, _ := barrier.Single()
	i, _ := incarnation.Single()
	var one int
	err := tx.QueryRow(ctx, guardSQL, []any{b, i, ms(limit)}, &one)
	if sqlState(err) != codeInvalidText {
		return txError(err)
	}
	if _, reason, ok := strings.Cut(err.Error(), refusal+": "); ok {
		reason, _, _ = strings.Cut(reason, `"`)
		return &refusedError{reason}
	}
	return err
}

// TxAbort makes the server abort the transaction.
func TxAbort(ctx context.Context, tx Tx) error {
	err := tx.Exec(ctx, "SELECT '"+refusal+"'::pg_catalog.int4")
	if sqlState(err) != "" {
		return nil // it is aborted, by this or before
	}
	return err
}

type refusedError struct{ reason string }

func (e *refusedError) Error() string { return e.reason }

func (e *refusedError) Is(target error) bool { return target == ErrRefused }
