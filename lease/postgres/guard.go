package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/txguard"
	"github.com/pglatch/pglatch/lease"
)

// A Beginner begins transactions; *pgxpool.Pool and *pgx.Conn implement it.
type Beginner = txguard.Beginner

// A PgxTx has the methods that Guard needs of a transaction; pgx.Tx has them. Pools and connections
// have them too, and are refused with ErrNoTransaction.
type PgxTx = pgsession.PgxTx

// A SQLTx has the methods that GuardSQL needs of a transaction. *sql.Tx has them, and so do the
// transactions of libraries built on it. Guard sends no arguments, so their placeholder style does
// not matter. *sql.DB and *sql.Conn have the methods too, and are refused with ErrNoTransaction.
type SQLTx = pgsession.SQLTx

// A TxEndedError reports that the function that InTx ran has ended the transaction. It says what
// was committed.
type TxEndedError = txguard.TxEndedError

// Guard lets the transaction continue only if the claim is the current one and its lease has not expired.
// The transaction then commits before any later lease of the name begins, or not at all. An Acquire waits
// for the end of the transaction; renewals and releases do not. The transaction must be on the database
// of the leases, by any connection, including one through a transaction pooler. Guard also sets the
// transaction's idle_in_transaction_session_timeout to the remaining time of the lease, at least a
// second, and client_connection_check_interval and tcp_keepalives to the same values as the guards of
// elections. Shorter settings stay unchanged. So a holder that dies, or stops in the middle of the
// transaction, does not block others for long.
//
// If the claim is not the current one, Guard returns *lease.StaleError, *lease.ExpiredError or
// *lease.NotFoundError, and the transaction is aborted: it cannot write any more. After
// *lease.BusyError, such as a serialization failure, the whole transaction may be tried again. In
// REPEATABLE READ and SERIALIZABLE, *lease.BusyError can also mean that the lease was granted,
// renewed or released after the transaction's snapshot was taken. So make Guard the first
// statement. Guard returns ErrReadOnly if the transaction is read-only, and lease.ErrNotReady if
// the schema is missing or was made by an older version. If ctx ended, Guard returns its cause.
// Any other error is the driver's. After all of these errors the transaction is aborted.
//
// Call Guard outside of savepoints, because a rollback to a savepoint older than the guard undoes
// the guard. InTx takes care of that.
//
// Outside of a transaction, Guard returns ErrNoTransaction, whatever the type of tx: a pool, a
// connection, a wrapper of one, or a transaction that has sent COMMIT. The server decides this: a
// second statement reads a setting that the first one made for its transaction (PostgreSQL manual,
// SET LOCAL). In that case nothing is guarded, not even later writes of that connection. A
// connection that has sent BEGIN is in a transaction.
func Guard(ctx context.Context, tx PgxTx, c lease.Claim) error {
	return guardOf(c, schema.Version).Guard(ctx, pgsession.FromPgx(tx))
}

// GuardSQL is Guard for database/sql.
func GuardSQL(ctx context.Context, tx SQLTx, c lease.Claim) error {
	return guardOf(c, schema.Version).Guard(ctx, pgsession.FromSQL(tx))
}

// InTx runs fn in a transaction that commits only if the claim is the current one and its lease has not
// expired. It calls Guard twice: before fn, and again just before the commit, outside of all savepoints. It
// also checks that the transaction is still the one that InTx began. fn may use savepoints (tx.Begin). It
// must neither commit nor roll back tx, nor reset its settings (RESET ALL).
//
// The error is one of these:
//
//   - the error of fn: the transaction is rolled back, as it is after a panic
//   - an error of Guard
//   - the error of the commit: as with any commit, it may have taken effect if the connection failed
//     meanwhile, and then it did so under this lease
//   - a *TxEndedError, if fn ended the transaction despite the rule above
func InTx(ctx context.Context, pool Beginner, c lease.Claim, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return InTxOptions(ctx, pool, pgx.TxOptions{}, c, fn)
}

// InTxOptions is InTx with an isolation level or other transaction options.
func InTxOptions(ctx context.Context, pool Beginner, options pgx.TxOptions, c lease.Claim, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return guardOf(c, schema.Version).InTx(ctx, pool, options, fn)
}

// InSQLTx is InTx for database/sql. The driver rolls the transaction back when ctx ends.
func InSQLTx(ctx context.Context, db *sql.DB, c lease.Claim, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return InSQLTxOptions(ctx, db, nil, c, fn)
}

// InSQLTxOptions is InSQLTx with an isolation level; nil = the driver's defaults.
func InSQLTxOptions(ctx context.Context, db *sql.DB, options *sql.TxOptions, c lease.Claim, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return guardOf(c, schema.Version).InSQLTx(ctx, db, options, fn)
}

// The guard checks the version of the schema itself, because it has no Store. All versions have refuse.
const leaseGuard = `WHEN coalesce((SELECT s.schema_version FROM pglatch_lease.store AS s) OPERATOR(pg_catalog.<) $6::pg_catalog.int8, true)
		AND pglatch_lease.refuse(pg_catalog.concat('version ', (SELECT s.schema_version FROM pglatch_lease.store AS s))) IS NULL THEN '1'
	WHEN pglatch_lease.guard($2::pg_catalog.text, $3::pg_catalog.text, $4::pg_catalog.text, $5::pg_catalog.int8) IS NULL THEN '1'`

var leaseGuards = txguard.NewOwnStatements(leaseGuard)

// guardOf returns the guard of a claim. It needs at least a version of the schema.
func guardOf(c lease.Claim, version int) txguard.Guard {
	return txguard.Guard{
		Package: "lease", Right: fmt.Sprintf("%s with token %d", c.Name, c.Token), Statements: leaseGuards,
		Args:   []any{c.Name, c.Holder, c.ID, int64(c.Token), int64(version)},
		Failed: func(err error) error { return guardError(c, version, err) },
	}
}

const refusal = "pglatch lease guard refused: "

// guardError finds the reason of a refusal in the server's error text, which every driver passes
// on.
func guardError(c lease.Claim, version int, err error) error {
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
		return fmt.Errorf("lease/postgres: guard of %s: %w", c.Name, ErrReadOnly)
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
