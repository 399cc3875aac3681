package pgsession

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/sqlstate"
)

// queryFirst is queryRow for a statement that runs before the session has its own settings. Settings of the
// role or the database could end or delay it, so they are off for its transaction. The first of several
// statements in one message switches them off, and until then they apply. SET LOCAL leaves no settings
// behind in a server session that a pooler gives to others.
func queryFirst(ctx context.Context, conn *pgconn.PgConn, sql string) (row []string, err error) {
	off := "SET LOCAL statement_timeout TO 0; SET LOCAL lock_timeout TO 0; "
	if serverMajor(conn) >= 17 {
		off = "SET LOCAL transaction_timeout TO 0; " + off
	}
	// In this level a transaction is not deferrable, and a standby answers it.
	off += "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; "
	for range attempts {
		if row, err = queryRow(ctx, conn, off+sql); sqlstate.Of(err) != sqlstate.QueryCanceled {
			break
		}
	}
	return row, err
}

// hurried reports whether a role's timeout, or a late cancel request, ended the first statements of a
// connection. Another attempt can then be faster.
func hurried(err error) bool {
	switch sqlstate.Of(err) {
	case sqlstate.QueryCanceled, sqlstate.TransactionTimeout, sqlstate.IdleSessionTimeout, sqlstate.FailedTransaction:
		return true
	}
	return false
}
