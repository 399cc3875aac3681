package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/pause"
	sessions "github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/txguard"
	"github.com/pglatch/pglatch/lease"
)

// ErrNoTransaction means that Guard or GuardSQL did not run in a transaction, so the guard
// ended with its own statement. Nothing is guarded. The error does not depend on the lease.
var ErrNoTransaction = sessions.ErrNoTransaction

// ErrReadOnly means that a guard got a read-only transaction, which it cannot use, because it locks the
// lease's row. The transaction is aborted. The error does not depend on the lease.
var ErrReadOnly = txguard.ErrReadOnly

var (
	errGuarded        = errors.New("guarded writes of the lease before are in flight")
	errLocked         = errors.New("another transaction has locked the lease's row")
	errUnstoredExpiry = errors.New("that the lease has expired is not stored yet")
)

// busyRetry is how long to wait at most before a busy store is worth another try.
const busyRetry = 100 * time.Millisecond

func busyError(cause error) error {
	return &lease.BusyError{Retry: pause.AtMost(busyRetry), Cause: cause}
}

// closedPool is the error text of a closed pool. Its error value is in an internal package.
const closedPool = "closed pool"

// unreachable converts an error from getting a connection: nothing was sent.
func unreachable(err error) error {
	if err.Error() == closedPool {
		return fmt.Errorf("lease/postgres: %w", lease.ErrClosed)
	}
	code := sqlstate.Of(err)
	ended := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) // while the pool had no connection
	if sqlstate.Undone(code) || strings.HasPrefix(code, sqlstate.ClassConnection) || strings.HasPrefix(code, sqlstate.ClassIntervention) || ended || brokeOff(err) {
		return busyError(err)
	}
	return fmt.Errorf("lease/postgres: %w: connecting: %w", lease.ErrNotReady, err)
}

// brokeOff reports whether err says that the connection ended during a statement.
func brokeOff(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return sqlstate.Of(err) == "" && (network || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// failed converts the error of a statement, which was its own transaction. If the server reported
// the error, it has rolled the transaction back.
func failed(err error) error {
	if err == nil {
		return nil
	}
	code := sqlstate.Of(err)
	switch {
	case sqlstate.Undone(code), pgconn.SafeToRetry(err):
		return busyError(err)
	case code == sqlstate.ReadOnly:
		return busyError(fmt.Errorf("%w: %w", errReadOnly, err))
	case code == sqlstate.InvalidSchema, (code == sqlstate.UndefinedTable || code == sqlstate.UndefinedFunction) && strings.Contains(err.Error(), schemaName):
		return outdated(err)
	case code == sqlstate.Privilege:
		return fmt.Errorf("lease/postgres: %[1]w: the role may not use the schema %[2]s: GRANT USAGE ON SCHEMA %[2]s TO the role; "+
			"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[2]s TO the role: %[3]w", lease.ErrNotReady, schemaName, err)
	}
	return fmt.Errorf("lease/postgres: %w", err)
}

// outdated returns the error for a schema that lacks something the store needs.
func outdated(cause error) error {
	return fmt.Errorf("lease/postgres: %w: the schema %s is not there or of an older version: make it with Store.Migrate, or with postgres.Schema in a migration: %w",
		lease.ErrNotReady, schemaName, cause)
}

// olderError says which version the schema has; "" = none.
func olderError(version string, needed int) error {
	return fmt.Errorf("its version is %s, and %d is needed", cmp.Or(version, "unknown"), needed)
}

// isUndone reports whether the server has rolled back the transaction that failed with err.
func isUndone(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.SeverityUnlocalized == "ERROR" && e.Code != sqlstate.UnknownCompletion || errors.Is(err, lease.ErrBusy)
}

// isImpatient reports whether a statement timed out waiting for a lock. It can be any lock, such
// as that of a table that grows, or that a vacuum truncates.
func isImpatient(err error) bool { return sqlstate.Of(err) == sqlstate.LockNotAvailable }
