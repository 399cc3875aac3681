package pgsession

import (
	"context"
	"fmt"
	"strconv"
	"strings"

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

// serverMajor returns the server's major version, or 0 if it is not reported.
func serverMajor(conn *pgconn.PgConn) int {
	version := conn.ParameterStatus("server_version") // "15.18 (Debian …)", "18beta1"
	digits := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(version)
	}
	major, _ := strconv.Atoi(version[:digits])
	return major
}

// queryRow runs a statement with one row and returns its columns as text.
func queryRow(ctx context.Context, conn *pgconn.PgConn, sql string) ([]string, error) {
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	last := results[len(results)-1]
	if len(last.Rows) != 1 {
		return nil, fmt.Errorf("BUG: %d rows from %q", len(last.Rows), sql)
	}
	row := make([]string, len(last.Rows[0]))
	for i, v := range last.Rows[0] {
		row[i] = string(v)
	}
	return row, nil
}
