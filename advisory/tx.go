package advisory

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/namespace"
)

// A PgxTx is what AcquireTx needs of a transaction; pgx.Tx has it. Pools and
// connections have it too, and are refused with ErrNoTransaction.
type PgxTx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// A SQLTx is what AcquireSQLTx needs of a transaction; *sql.Tx has it, and so
// have the transactions of libraries on top of it. Pools and connections have it too,
// and are refused with ErrNoTransaction.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// AcquireTx takes the lock on key in a transaction of the caller's, until that
// ends: PostgreSQL releases it with the commit or rollback, in the same instant
// in which the changes become visible. It excludes, and is excluded by, every
// other lock on the key in the same database. There is no handle to release and
// none is needed; nothing of the Locker's pool is used, and neither Stats nor the
// Tracer know of it.
//
// The server is asked, not the type of tx: a connection on which BEGIN was sent is
// a transaction, and a transaction in which COMMIT was sent is none. Outside of one
// nothing is locked, and the error matches ErrNoTransaction. That takes two round trips,
// one more than the lock itself.
//
// It waits at most for the Locker's Timeout, and never in one statement for longer
// than 900 ms. On *TimeoutError and *ReentrantError the transaction is as it was
// and goes on; lock_timeout is as before in any case. Other errors are those of
// the driver, or ErrLockTableFull, after which PostgreSQL has aborted it. A rollback to a savepoint that is older than the lock
// releases it. If ctx ends during the wait the driver ends the transaction. In
// isolation levels above read committed the transaction's snapshot can be older
// than the lock: take the lock first.
func (l *Locker) AcquireTx(ctx context.Context, tx PgxTx, key namespace.Key) error {
	if tx == nil {
		return &ConfigError{"tx", nil, "pass an open transaction"}
	}
	return l.acquireTx(ctx, pgsession.FromPgx(tx), key)
}

// AcquireSQLTx is AcquireTx for database/sql.
func (l *Locker) AcquireSQLTx(ctx context.Context, tx SQLTx, key namespace.Key) error {
	if tx == nil {
		return &ConfigError{"tx", nil, "pass an open transaction"}
	}
	return l.acquireTx(ctx, pgsession.FromSQL(tx), key)
}

func (l *Locker) acquireTx(ctx context.Context, tx pgsession.Tx, key namespace.Key) error {
	r, err := l.request(ctx, key)
	if err != nil {
		return err
	}
	c := l.core
	c.mu.Lock()
	err = c.reentrant(ctx, r)
	if c.closed {
		err = ErrClosed
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	held, err := pgsession.TxTry(ctx, tx, key.Tag(), r.mode)
	for !held && err == nil {
		limit := NoTimeout
		if !r.deadline.IsZero() {
			limit = time.Until(r.deadline)
		}
		if limit <= 0 {
			return &TimeoutError{Key: key, Waited: time.Since(r.start), Holder: c.holder(key.Tag()), held: true}
		}
		held, err = pgsession.TxWait(ctx, tx, key.Tag(), r.mode, limit)
	}
	switch {
	case errors.Is(err, ErrLockTableFull):
		return c.tableFull(key, err)
	case errors.Is(err, ErrNoTransaction):
		return fmt.Errorf("advisory: lock %v: %w", key, err)
	case err != nil:
		return fmt.Errorf("advisory: lock %v in a transaction: %w", key, err)
	}
	return nil
}
