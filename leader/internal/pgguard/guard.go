package pgguard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

var (
	// ErrRefused means that a guard refused a transaction, which is aborted.
	ErrRefused = errors.New("refused by the guard")
	// ErrTxEnded means that a guard found no transaction, or another than the one before. It is aborted.
	ErrTxEnded = errors.New("the transaction was ended")
)

const (
	refusal      = "pglatch: not the leader"
	endedRefusal = "pglatch: the guarded transaction was ended"
)

// The refusals of a guard.
const (
	UnderWay = refusal + ": a takeover is under way"
	TermOver = refusal + ": the term has ended"
)

// guardedMark is the setting that marks a transaction from its first guard to the last. It ends with the
// transaction, like every setting made with SET LOCAL (PostgreSQL manual, SET). A later savepoint's rollback
// does not undo it.
const guardedMark = "'pglatch.guarded'"

// The conditions and results of guards, in which $1 is a mark: of a single guard; of the first of two, which
// marks the transaction; and of the second, which requires that mark.
var (
	guardAlone  = guardPart{pgsession.SetMark + " IS NULL", "0"}
	guardFirst  = guardPart{"pg_catalog.set_config(" + guardedMark + ", $1::pg_catalog.text, true) IS NULL", "0"}
	guardSecond = guardPart{"coalesce(pg_catalog.current_setting(" + guardedMark + ", true), '') OPERATOR(pg_catalog.<>) $1::pg_catalog.text", endedRefusal}
)

// A guardPart is a condition under which a guard answers result without doing anything else.
type guardPart struct{ condition, result string }

// guardingSQL returns the statement of a guard. refusals are the WHENs by which it refuses, and last is the
// number of their last parameter. The parameters of its Patience follow.
//
// A refusal is text that is not a number, so that the server aborts the transaction. The server does not fold
// the conversion, because the text depends on volatile functions. It is not a cast, because a database can
// have a lenient cast of its own from text to int4.
func guardingSQL(part guardPart, refusals string, last int) string {
	idle, probes, check := fmt.Sprintf("$%d::pg_catalog.text", last+1), fmt.Sprintf("$%d::pg_catalog.int4", last+2), fmt.Sprintf("$%d::pg_catalog.text", last+3)
	return `SELECT pg_catalog.int4in(pg_catalog.textout(CASE
	WHEN ` + part.condition + ` THEN '` + part.result + `'
	` + refusals + `
	WHEN ` + shortenSQL("idle_in_transaction_session_timeout", idle) + `
	WHEN ` + lessenSQL("tcp_keepalives_idle", probes) + `
	WHEN ` + lessenSQL("tcp_keepalives_interval", probes) + `
	WHEN ` + lessenSQL("tcp_keepalives_count", strconv.Itoa(pgsession.Keepalives)) + `
	WHEN ` + check + ` OPERATOR(pg_catalog.=) '' THEN '1'
	WHEN ` + shortenSQL("client_connection_check_interval", check) + `
	ELSE '1' END))`
}

// shortenSQL returns a WHEN of a CASE that never applies. It sets a time for the transaction unless the time
// is already that short; 0 is none.
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
	// Idle limits how long the client may send nothing between two statements, and about how long it may be
	// unreachable.
	Idle time.Duration
	// Checks means that the server can check during a statement whether the client has gone. Not all
	// platforms can.
	Checks bool
}

// maxCheck is the longest time between two checks for a client that may have gone.
const maxCheck = time.Second

// Statements are a single guard, and a pair of guards for the start and the end of a transaction.
type Statements struct{ alone, first, second string }

// NewStatements returns the guards for refusals, which are WHENs of a CASE with the parameters $2 to $last.
func NewStatements(refusals string, last int) *Statements {
	return &Statements{
		guardingSQL(guardAlone, refusals, last), guardingSQL(guardFirst, refusals, last), guardingSQL(guardSecond, refusals, last),
	}
}

// A Guarding holds the locks and settings of the guards of one term, of an election or of a shard.
type Guarding struct {
	Statements *Statements
	Args       []any // arguments of the statements, from $2 on
	Patience   Patience
}

// Guard lets the transaction continue if the term lasts: the incarnation is held, or the shard's row is as
// the term left it. It holds the barrier, or the row, until the end of the transaction, with that patience.
// An error that matches ErrRefused gives the reason, and the transaction is aborted. An error that matches
// session.ErrNoTransaction means that there is no transaction, and nothing is held.
func Guard(ctx context.Context, tx pgsession.Tx, g Guarding) error {
	return refusedBy(pgsession.TxExec(ctx, tx, g.Statements.alone, g.args()...))
}

// GuardFirst is Guard at the start of a transaction, which it marks. GuardAgain later checks that there was a
// transaction.
func GuardFirst(ctx context.Context, tx pgsession.Tx, g Guarding, mark string) error {
	return refusedBy(pgsession.TxSend(ctx, tx, g.Statements.first, append([]any{mark}, g.args()...)...))
}

// GuardAgain is Guard at the end of a transaction. It returns ErrTxEnded if there is no transaction, or one
// without that mark.
func GuardAgain(ctx context.Context, tx pgsession.Tx, g Guarding, mark string) error {
	return refusedBy(pgsession.TxSend(ctx, tx, g.Statements.second, append([]any{mark}, g.args()...)...))
}

// args returns the arguments of a guard's statement, after the mark.
func (g Guarding) args() []any {
	check := ""
	if g.Patience.Checks {
		check = ms(min(g.Patience.Idle/4, maxCheck))
	}
	return append(slices.Clip(g.Args), ms(g.Patience.Idle), pgsession.Probe(g.Patience.Idle), check)
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }

// refusedBy finds a refusal in the text of an error.
func refusedBy(err error) error {
	if sqlstate.Of(err) != sqlstate.InvalidText {
		return err
	}
	if strings.Contains(err.Error(), endedRefusal) {
		return ErrTxEnded
	}
	if _, reason, ok := strings.Cut(err.Error(), refusal+": "); ok {
		reason, _, _ = strings.Cut(reason, `"`)
		return &refusedError{reason}
	}
	return err
}

// Abort makes the server abort the transaction.
func Abort(ctx context.Context, tx pgsession.Tx) error {
	err := tx.Exec(ctx, "SELECT '"+refusal+"'::pg_catalog.int4")
	if sqlstate.Of(err) != "" {
		return nil // aborted, by this statement or before
	}
	return err
}

type refusedError struct{ reason string }

func (e *refusedError) Error() string { return e.reason }

func (e *refusedError) Is(target error) bool { return target == ErrRefused }
