package txguard

import (
	"fmt"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
)

// The refusals of a guard.
const (
	Refusal      = "pglatch: not the leader: " // a reason follows
	endedRefusal = "pglatch: the guarded transaction was ended"
)

// guardedMark is the setting that marks a transaction from its first guard to the last. It ends with the
// transaction, like every setting made with SET LOCAL (PostgreSQL manual, SET). A later savepoint's rollback
// does not undo it.
const guardedMark = "'pglatch.guarded'"

// The conditions and results of guards, in which $1 is a mark: of a single guard; of the first of two, which
// marks the transaction; and of the second, which requires that mark.
var (
	guardAlone = guardPart{pgsession.SetMark + " IS NULL", "0"}
	guardFirst = guardPart{"pg_catalog.set_config(" + guardedMark + ", $1::pg_catalog.text, true) IS NULL", "0"}
	guardAgain = guardPart{"coalesce(pg_catalog.current_setting(" + guardedMark + ", true), '') OPERATOR(pg_catalog.<>) $1::pg_catalog.text", endedRefusal}
)

// A guardPart is a condition under which a guard answers result without doing anything else.
type guardPart struct{ condition, result string }

// guardSQL returns the statement of a guard, which refuses or sets limits by whens.
//
// A refusal is text that is not a number, so that the server aborts the transaction. The server does not fold
// the conversion, because the text depends on volatile functions. It is not a cast, because a database can
// have a lenient cast of its own from text to int4.
func guardSQL(part guardPart, whens string) string {
	return `SELECT pg_catalog.int4in(pg_catalog.textout(CASE
	WHEN ` + part.condition + ` THEN '` + part.result + `'
	` + whens + `
	ELSE '1' END))`
}

// limitsSQL returns the WHENs that set Limits, whose parameters follow $last.
func limitsSQL(last int) string {
	idle, probes, check := fmt.Sprintf("$%d::pg_catalog.text", last+1), fmt.Sprintf("$%d::pg_catalog.int4", last+2), fmt.Sprintf("$%d::pg_catalog.text", last+3)
	return `
	WHEN ` + shortenSQL("idle_in_transaction_session_timeout", idle) + `
	WHEN ` + lessenSQL("tcp_keepalives_idle", probes) + `
	WHEN ` + lessenSQL("tcp_keepalives_interval", probes) + `
	WHEN ` + lessenSQL("tcp_keepalives_count", strconv.Itoa(pgsession.Keepalives)) + `
	WHEN ` + check + ` OPERATOR(pg_catalog.=) '' THEN '1'
	WHEN ` + shortenSQL("client_connection_check_interval", check)
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

// Limits are how long the server waits for the client of a guarded transaction.
type Limits struct {
	// Idle limits how long the client may send nothing between two statements, and about how long it may be
	// unreachable.
	Idle time.Duration
	// Checks means that the server can check during a statement whether the client has gone. Not all
	// platforms can.
	Checks bool
}

// maxCheck is the longest time between two checks for a client that may have gone.
const maxCheck = time.Second

// Args returns the parameters of the limits.
func (l Limits) Args() []any {
	check := ""
	if l.Checks {
		check = pgsession.Milliseconds(min(l.Idle/4, maxCheck))
	}
	return []any{pgsession.Milliseconds(l.Idle), pgsession.Probe(l.Idle), check}
}

// Statements are a single guard, and a pair of guards for the start and the end of a transaction.
type Statements struct{ alone, first, again string }

// NewStatements returns the guards for refusals, which are WHENs of a CASE with the parameters $2 to $last. The
// parameters of Limits follow.
func NewStatements(refusals string, last int) *Statements {
	return newStatements(refusals + limitsSQL(last))
}

// NewOwnStatements is NewStatements for refusals that set limits of their own.
func NewOwnStatements(refusals string) *Statements { return newStatements(refusals) }

// NewClosing is NewStatements with another guard at the end of a transaction. Its refusals, closing, have the parameters
// $2 to $closingLast of Guard.Closing, which the parameters of Limits follow. They can also do the last part of the work.
func NewClosing(refusals string, last int, closing string, closingLast int) *Statements {
	s := NewStatements(refusals, last)
	s.again = NewStatements(closing, closingLast).again
	return s
}

func newStatements(whens string) *Statements {
	return &Statements{guardSQL(guardAlone, whens), guardSQL(guardFirst, whens), guardSQL(guardAgain, whens)}
}
