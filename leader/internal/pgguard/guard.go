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
	// ErrRefused says that a guard refused a transaction, which is aborted.
	ErrRefused = errors.New("refused by the guard")
	// ErrTxEnded says that a guard found another transaction than the one before, or
	// none. It is aborted.
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

// guardedMark is the setting that marks a transaction from its first guard to the last.
// It ends with it, as every setting that is made with SET LOCAL does (PostgreSQL manual,
// SET), and no savepoint made later takes it back.
const guardedMark = "'pglatch.guarded'"

// The conditions and results of guards, in which $1 is a mark: of a guard alone; of the first of two,
// which marks the transaction; and of the second, which wants that mark.
var (
	guardAlone  = guardPart{pgsession.SetMark + " IS NULL", "0"}
	guardFirst  = guardPart{"pg_catalog.set_config(" + guardedMark + ", $1::pg_catalog.text, true) IS NULL", "0"}
	guardSecond = guardPart{"coalesce(pg_catalog.current_setting(" + guardedMark + ", true), '') OPERATOR(pg_catalog.<>) $1::pg_catalog.text", endedRefusal}
)

// A guardPart is a condition under which the result is the answer of a guard that has done nothing else.
type guardPart struct{ condition, result string }

// guardingSQL is the statement of a guard that refuses by some WHENs, whose last parameter is given; what follows are those of
// its Patience. A refusal is text that is no
// number, so that the server aborts the transaction; the conversion is not folded,
// because the text depends on volatile functions, and it is no cast, because a
// database can have a lenient one of its own from text to int4.
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

// Statements are a guard alone, and two that belong together: at the begin of a transaction, and at its end.
type Statements struct{ alone, first, second string }

// NewStatements returns the guards that refuse by some WHENs of a CASE, whose parameters are $2 to that with the number last.
func NewStatements(refusals string, last int) *Statements {
	return &Statements{
		guardingSQL(guardAlone, refusals, last), guardingSQL(guardFirst, refusals, last), guardingSQL(guardSecond, refusals, last),
	}
}

// A Guarding is what guards of one term take and set: of an election, or of a shard.
type Guarding struct {
	Statements *Statements
	Args       []any // of the statements, from $2 on
	Patience   Patience
}

// Guard lets the transaction go on if the term lasts: the incarnation is held, or the shard's row is as it left it. It holds the barrier,
// or the row, until the end of the transaction, with that patience. An error that matches ErrRefused says why not; the
// transaction is aborted then. One that matches session.ErrNoTransaction says that there
// is none; nothing is held then.
func Guard(ctx context.Context, tx pgsession.Tx, g Guarding) error {
	return refusedBy(pgsession.TxExec(ctx, tx, g.Statements.alone, g.args()...))
}

// GuardFirst is Guard at the begin of a transaction, which it marks. That there is one
// is for GuardAgain to find.
func GuardFirst(ctx context.Context, tx pgsession.Tx, g Guarding, mark string) error {
	return refusedBy(pgsession.TxSend(ctx, tx, g.Statements.first, append([]any{mark}, g.args()...)...))
}

// GuardAgain is Guard at the end of a transaction, and ErrTxEnded if it is another
// than the one with that mark, or none.
func GuardAgain(ctx context.Context, tx pgsession.Tx, g Guarding, mark string) error {
	return refusedBy(pgsession.TxSend(ctx, tx, g.Statements.second, append([]any{mark}, g.args()...)...))
}

// args are the arguments of a guard's statement, after the mark.
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
		return nil // it is aborted, by this or before
	}
	return err
}

type refusedError struct{ reason string }

func (e *refusedError) Error() string { return e.reason }

func (e *refusedError) Is(target error) bool { return target == ErrRefused }
