package pgsession

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
var guardSQL = `SELECT pg_catalog.int4in(pg_catalog.textout(CASE
	WHEN NOT pg_catalog.pg_try_advisory_xact_lock_shared($1::pg_catalog.int8) THEN '` + refusal + `: a takeover is under way'
	WHEN pg_catalog.pg_try_advisory_xact_lock_shared($2::pg_catalog.int8) THEN '` + refusal + `: the term has ended'
	WHEN ` + shortenSQL("idle_in_transaction_session_timeout", "$3::pg_catalog.text") + `
	WHEN ` + lessenSQL("tcp_keepalives_idle", "$4::pg_catalog.int4") + `
	WHEN ` + lessenSQL("tcp_keepalives_interval", "$4::pg_catalog.int4") + `
	WHEN ` + lessenSQL("tcp_keepalives_count", strconv.Itoa(keepalives)) + `
	WHEN $5::pg_catalog.text OPERATOR(pg_catalog.=) '' THEN '1'
	WHEN ` + shortenSQL("client_connection_check_interval", "$5::pg_catalog.text") + `
	ELSE '1' END))`

// shortenSQL is a WHEN of a CASE that never applies, and sets a time for the
// transaction unless it is that short already; 0 is none.
func shortenSQL(name, value string) string {
	return fmt.Sprintf(`CASE
		WHEN pg_catalog.current_setting('%[1]s')::pg_catalog.interval OPERATOR(pg_catalog.>) '0'::pg_catalog.interval
			AND pg_catalog.current_setting('%[1]s')::pg_catalog.interval OPERATOR(pg_catalog.<=) %[2]s::pg_catalog.interval
		THEN false ELSE pg_catalog.set_config('%[1]s', %[2]s, true) IS NULL END THEN '0'`, name, value)
}

// lessenSQL is shortenSQL for a number, of seconds or probes.
func lessenSQL(name, value string) string {
	return fmt.Sprintf(`CASE
		WHEN pg_catalog.current_setting('%[1]s')::pg_catalog.int4 OPERATOR(pg_catalog.>) 0
			AND pg_catalog.current_setting('%[1]s')::pg_catalog.int4 OPERATOR(pg_catalog.<=) %[2]s
		THEN false ELSE pg_catalog.set_config('%[1]s', (%[2]s)::pg_catalog.text, true) IS NULL END THEN '0'`, name, value)
}

// A Patience is how long the server waits for the client of a guarded transaction.
type Patience struct {
	// Idle bounds how long the client may send nothing between two statements, and
	// about how long it may be out of reach.
	Idle time.Duration
	// Checks: the server can be told to look during a statement whether the client has
	// gone, which not all platforms can.
	Checks bool
}

// maxCheck is the longest time between two looks for a client that may have gone.
const maxCheck = time.Second

// TxGuard lets the transaction go on if the incarnation is held, and holds the
// barrier until its end, with that patience. An error that matches ErrRefused says
// why not; the transaction is aborted then.
func TxGuard(ctx context.Context, tx Tx, barrier, incarnation namespace.Tag, patience Patience) error {
	b, _ := barrier.Single()
	i, _ := incarnation.Single()
	check := ""
	if patience.Checks {
		check = ms(min(patience.Idle/4, maxCheck))
	}
	var one int
	err := tx.QueryRow(ctx, guardSQL, []any{b, i, ms(patience.Idle), probe(patience.Idle), check}, &one)
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
