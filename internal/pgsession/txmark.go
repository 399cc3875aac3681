package pgsession

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/pglatch/pglatch/internal/session"
)

// Two statements take a lock or guard for the transaction. The first takes it and stores the result
// in a setting that ends with its transaction (PostgreSQL manual, SET LOCAL). The second, which
// always has the same text, reads it. If the two are not in one transaction, on one session,
// whatever pool or pooler is in between, the result is missing. In that case the end of the first
// statement released what it took. (No query can tell whether it is in a transaction block: the
// server begins a transaction for each one that is not.)

// SetMark sets the mark of a TxExec, in its statement.
const SetMark = `pg_catalog.set_config('pglatch.outcome', $1::pg_catalog.text, true)`

// outcomeSQL reads the stored result, and the transaction and server process that read it.
var outcomeSQL = `SELECT pg_catalog.concat(pg_catalog.pg_backend_pid(), ' ', ` + microsSQL("pg_catalog.now()") + `, ' ', pg_catalog.current_setting('pglatch.outcome', true))`

// TxExec runs a statement that has SetMark and in which $1 is the mark, and checks that it was in a
// transaction. If not, the error matches session.ErrNoTransaction: the effects of the statement are
// already committed, and its locks are free.
func TxExec(ctx context.Context, tx Tx, sql string, args ...any) error {
	_, err := TxAsk(ctx, tx, sql, args...)
	return err
}

// TxAsk is TxExec for a statement that stores an answer behind the mark, which is $1.
func TxAsk(ctx context.Context, tx Tx, sql string, args ...any) (answer string, err error) {
	mark := newMark()
	if err := TxSend(ctx, tx, sql, append([]any{mark}, args...)...); err != nil {
		return "", err
	}
	return txOutcome(ctx, tx, mark)
}

// TxOnce is TxAsk without a mark and a second statement: sql returns the answer. It works if the driver is pgx and the
// connection says that it is in a transaction block, before and after the statement. Otherwise sent is false, and nothing
// was sent.
func TxOnce(ctx context.Context, tx Tx, sql string, args ...any) (answer string, sent bool, err error) {
	p, ok := tx.(pgxTx)
	if !ok || !p.inBlock() {
		return "", false, nil
	}
	if err := p.tx.QueryRow(ctx, sql, args...).Scan(&answer); err != nil {
		return "", true, txError(err)
	}
	if !p.inBlock() {
		return "", true, errNoTx
	}
	return answer, true, nil
}

// txRun stores the mark and the arguments for a DO block with the statement request, and returns
// what the block stored behind the mark.
func txRun(ctx context.Context, tx Tx, block, request string, args ...any) (answer string, err error) {
	mark := newMark()
	if err := TxSend(ctx, tx, request, append([]any{mark}, args...)...); err != nil {
		return "", err
	}
	if err := TxSend(ctx, tx, block); err != nil {
		return "", err
	}
	return txOutcome(ctx, tx, mark)
}

func newMark() string { return rand.Text() + ":" }

// txOutcome reads what a statement stored behind the mark in this transaction.
func txOutcome(ctx context.Context, tx Tx, mark string) (outcome string, err error) {
	if err := tx.QueryRow(ctx, outcomeSQL, &outcome); err != nil {
		return "", txError(err)
	}
	pid, rest, _ := strings.Cut(outcome, " ")
	at, rest, _ := strings.Cut(rest, " ")
	outcome, ok := strings.CutPrefix(rest, mark)
	if !ok {
		return "", errNoTx
	}
	ourTransactions.note(began{parsePID(pid), parseMicros(at)})
	switch outcome {
	case unsupported:
		return "", fmt.Errorf("%w: it granted one, and its pg_locks does not have it; %s", session.ErrUnsupported, proveIt)
	case standby:
		return "", fmt.Errorf("%w, which has a lock space of its own: begin the transaction on the primary", session.ErrStandby)
	}
	return outcome, nil
}
