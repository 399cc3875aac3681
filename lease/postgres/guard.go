package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/lease"
)

// A PgxTx is what Guard needs of a transaction; pgx.Tx has it. Pools and connections
// have it too, and are refused with ErrNoTransaction.
type PgxTx = pgsession.PgxTx

// A SQLTx is what GuardSQL needs of a transaction; *sql.Tx has it, and so have the
// transactions of libraries on top of it: no arguments are sent, so that it does not
// matter what placeholders they have. *sql.DB and *sql.Conn have it too, and are refused
// with ErrNoTransaction.
type SQLTx = pgsession.SQLTx

const (
	// Older versions of the schema have guards that let stale writes pass, so the statement
	// looks at the version itself. All of them have refuse.
	guardSQL = `SELECT ` + pgsession.SetMark + `, CASE WHEN (SELECT s.schema_version FROM pglatch_lease.store AS s) OPERATOR(pg_catalog.>=) ` + neededVersion + `
	THEN pglatch_lease.guard($2::pg_catalog.text, $3::pg_catalog.text, $4::pg_catalog.text, $5::pg_catalog.int8, ` + neededVersion + `)
	ELSE pglatch_lease.refuse(pg_catalog.concat('version ', (SELECT s.schema_version FROM pglatch_lease.store AS s))) END`
	refusal = "pglatch lease guard refused: "
)

// Guard lets the transaction go on only if the claim is the current one and its
// lease has not expired: it commits before any later lease of the name begins, or
// not at all. An Acquire waits for that; renewals and a release do not. The
// transaction is on the database of the leases, by any connection, also through a
// transaction pooler. Guard also sets its idle_in_transaction_session_timeout to
// what is left of the lease, at least a second, or keeps a shorter one, so that a
// holder that is stopped halfway does not hold up others for long.
//
// If the claim is not the current one, Guard returns *lease.StaleError,
// *lease.ExpiredError or *lease.NotFoundError, and the transaction is aborted: it
// cannot write any more. After *lease.BusyError, a serialization failure for
// example, the whole transaction may be tried again: in repeatable read and serializable
// it also says that the lease was renewed or released since the transaction's snapshot was
// taken, or granted, so Guard is best the first statement. *lease.InvalidError if the transaction
// is read-only, lease.ErrNotReady if the schema is missing or was made by an older version. Any
// other error is the driver's.
//
// Call Guard outside of savepoints, because a rollback to a savepoint that is older
// than the guard takes it back.
//
// What is not in a transaction is refused with ErrNoTransaction, whatever its type: a
// pool, a connection, a wrapper of one, a transaction that has sent COMMIT. It is the
// server that is asked, by a second statement, which reads a setting that the first one
// made for its transaction (PostgreSQL manual, SET LOCAL). Nothing is guarded then, and
// what such a connection writes after is not either. A connection that has sent BEGIN is
// in a transaction.
func Guard(ctx context.Context, tx PgxTx, c lease.Claim) error {
	return guard(ctx, pgsession.FromPgx(tx), c)
}

// GuardSQL is Guard for database/sql.
func GuardSQL(ctx context.Context, tx SQLTx, c lease.Claim) error {
	return guard(ctx, pgsession.FromSQL(tx), c)
}

func guard(ctx context.Context, tx pgsession.Tx, c lease.Claim) error {
	return guardError(c, pgsession.TxExec(ctx, tx, guardSQL, c.Name, c.Holder, c.ID, int64(c.Token)))
}

// guardError finds the reason of a refusal in the text of the server's error, which
// every driver has.
func guardError(c lease.Claim, err error) error {
	if err == nil {
		return nil
	}
	_, text, ok := strings.Cut(err.Error(), refusal)
	if !ok {
		return fmt.Errorf("guard of %s: %w", c.Name, failed(err))
	}
	text, _, _ = strings.Cut(text, ".")
	reason := strings.Fields(text)
	switch reason[0] {
	case "version":
		return fmt.Errorf("guard of %s: %w", c.Name, outdated(olderError(strings.Join(reason[1:], ""))))
	case "readonly":
		return &lease.InvalidError{Field: "the transaction", Value: "read-only", Remedy: "begin it READ WRITE; one that writes nothing needs no guard"}
	case "unknown":
		return &lease.NotFoundError{Name: c.Name}
	case "released":
		return &lease.StaleError{Name: c.Name, Released: true}
	case "expired":
		us, _ := strconv.ParseInt(reason[1], 10, 64) // a number, by the function in the schema
		return &lease.ExpiredError{Name: c.Name, At: time.UnixMicro(us).UTC()}
	}
	return &lease.StaleError{
		Name: c.Name, Holder: slices.Contains(reason, "holder"), ID: slices.Contains(reason, "id"), Token: slices.Contains(reason, "token"),
	}
}
