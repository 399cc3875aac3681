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

// A PgxTx has the methods that Guard needs of a transaction; pgx.Tx has them. Pools and connections
// have them too, and are refused with ErrNoTransaction.
type PgxTx = pgsession.PgxTx

// A SQLTx has the methods that GuardSQL needs of a transaction. *sql.Tx has them, and so do the
// transactions of libraries on top of it. Guard sends no arguments, so their placeholder style does
// not matter. *sql.DB and *sql.Conn have the methods too, and are refused with ErrNoTransaction.
type SQLTx = pgsession.SQLTx

const (
	// The statement checks the version of the schema itself, because a guard has no Store. All versions have
	// refuse.
	guardSQL = `SELECT ` + pgsession.SetMark + `, CASE WHEN (SELECT s.schema_version FROM pglatch_lease.store AS s) OPERATOR(pg_catalog.>=) $6::pg_catalog.int8
	THEN pglatch_lease.guard($2::pg_catalog.text, $3::pg_catalog.text, $4::pg_catalog.text, $5::pg_catalog.int8)
	ELSE pglatch_lease.refuse(pg_catalog.concat('version ', (SELECT s.schema_version FROM pglatch_lease.store AS s))) END`
	refusal = "pglatch lease guard refused: "
)

// Guard lets the transaction continue only if the claim is the current one and its lease has not
// expired. The transaction then commits before any later lease of the name begins, or not at all.
// An Acquire waits for that; renewals and a release do not. The transaction must be on the database
// of the leases, by any connection, including one through a transaction pooler. Guard also sets the
// transaction's idle_in_transaction_session_timeout to the time left of the lease, at least a
// second, or keeps a shorter one. So a holder that stops halfway does not block others for long.
//
// If the claim is not the current one, Guard returns *lease.StaleError, *lease.ExpiredError or
// *lease.NotFoundError, and the transaction is aborted: it cannot write any more. After
// *lease.BusyError, such as a serialization failure, the whole transaction may be tried again. In
// REPEATABLE READ and SERIALIZABLE, *lease.BusyError can also say that the lease changed after the
// transaction's snapshot was taken: it was granted, renewed or released. So Guard is best the first
// statement. Guard returns *lease.InvalidError if the transaction is read-only, and
// lease.ErrNotReady if the schema is missing or was made by an older version. Any other error is
// the driver's.
//
// Call Guard outside of savepoints, because a rollback to a savepoint older than the guard undoes
// the guard.
//
// Outside of a transaction, Guard returns ErrNoTransaction, whatever the type of tx: a pool, a
// connection, a wrapper of one, or a transaction that has sent COMMIT. The server decides this: a
// second statement reads a setting that the first one made for its transaction (PostgreSQL manual,
// SET LOCAL). Nothing is guarded then, and neither are later writes of that connection. A
// connection that has sent BEGIN is in a transaction.
func Guard(ctx context.Context, tx PgxTx, c lease.Claim) error {
	return guard(ctx, pgsession.FromPgx(tx), c, schema.Version)
}

// GuardSQL is Guard for database/sql.
func GuardSQL(ctx context.Context, tx SQLTx, c lease.Claim) error {
	return guard(ctx, pgsession.FromSQL(tx), c, schema.Version)
}

// guard needs at least a version of the schema.
func guard(ctx context.Context, tx pgsession.Tx, c lease.Claim, version int) error {
	return guardError(c, version, pgsession.TxExec(ctx, tx, guardSQL, c.Name, c.Holder, c.ID, int64(c.Token), int64(version)))
}

// guardError finds the reason of a refusal in the server's error text, which every driver passes
// on.
func guardError(c lease.Claim, version int, err error) error {
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
		return fmt.Errorf("guard of %s: %w", c.Name, outdated(olderError(strings.Join(reason[1:], ""), version)))
	case "readonly":
		return &lease.InvalidError{Field: "the transaction", Value: "read-only", Remedy: "begin it READ WRITE; one that writes nothing needs no guard"}
	case "unknown":
		return &lease.NotFoundError{Name: c.Name}
	case "released":
		return &lease.StaleError{Name: c.Name, Released: true}
	case "expired":
		us, _ := strconv.ParseInt(reason[1], 10, 64) // always a number, from the function in the schema
		return &lease.ExpiredError{Name: c.Name, At: time.UnixMicro(us).UTC()}
	}
	return &lease.StaleError{
		Name: c.Name, Holder: slices.Contains(reason, "holder"), ID: slices.Contains(reason, "id"), Token: slices.Contains(reason, "token"),
	}
}
