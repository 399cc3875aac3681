package advisory

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A PgxTx is what LockTx needs of a transaction; pgx.Tx has it. Pools and
// connections have it too, and are refused with ErrNoTransaction.
type PgxTx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// A SQLTx is what LockSQLTx needs of a transaction; *sql.Tx has it, and so have the
// transactions of libraries on top of it: sqlx, bun, sqlc, GORM (its
// tx.Statement.ConnPool), ent (with its feature sql/execquery). Pools and connections
// have it too, and are refused with ErrNoTransaction.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// LockTx takes the locks on keys in a transaction of the caller's, until that
// ends: PostgreSQL releases them with the commit or rollback, in the same instant
// in which the changes become visible. They exclude, and are excluded by, every
// other lock on the keys in the same database. There is no handle to release and
// none is needed, and no Locker: it works through poolers in any mode.
//
// The server is asked, not the type of tx: a connection on which BEGIN was sent is
// a transaction, and a transaction in which COMMIT was sent is none. Outside of one
// nothing stays locked, and the error matches ErrNoTransaction. A lock costs two
// round trips, and so do several that are free.
//
// It takes the keys in a fixed order, whatever the order of the arguments, so that two
// calls never deadlock; equal keys count once. It waits for 15 s at most, for all of
// them together, and never in one statement for longer than 900 ms. On *TimeoutError
// the transaction goes on, and has the locks that it got before; lock_timeout
// is as before in any case. It is *ReentrantError if ctx carries a lock of a Locker
// that is in the way: nothing was locked. No key, or an invalid one, matches
// namespace.ErrInvalidKey. ErrUnsupported is for a server that only pretends. Other
// errors are those of the driver, or ErrLockTableFull, after which PostgreSQL has
// aborted the transaction. A rollback to a savepoint that is older than a lock releases
// it. If ctx ends during the wait the driver ends the transaction. In isolation levels
// above read committed the transaction's snapshot can be older than the lock: take the
// lock first.
func LockTx(ctx context.Context, tx PgxTx, keys ...namespace.Key) error {
	return Options{}.LockTx(ctx, tx, keys...)
}

// TryLockTx is LockTx without a wait, and takes all keys or none: if one is held the
// error is *HeldError, and the transaction is as it was.
func TryLockTx(ctx context.Context, tx PgxTx, keys ...namespace.Key) error {
	return Options{}.TryLockTx(ctx, tx, keys...)
}

// LockSQLTx is LockTx for database/sql and the libraries on top of it.
func LockSQLTx(ctx context.Context, tx SQLTx, keys ...namespace.Key) error {
	return Options{}.LockSQLTx(ctx, tx, keys...)
}

// TryLockSQLTx is TryLockTx for database/sql and the libraries on top of it.
func TryLockSQLTx(ctx context.Context, tx SQLTx, keys ...namespace.Key) error {
	return Options{}.TryLockSQLTx(ctx, tx, keys...)
}

// LockTx is the function LockTx with a wait or a mode of its own. Wait 0 = 15 s.
func (o Options) LockTx(ctx context.Context, tx PgxTx, keys ...namespace.Key) error {
	return o.lockTx(ctx, fromPgx(tx), keys, false)
}

// TryLockTx is the function TryLockTx with a mode of its own.
func (o Options) TryLockTx(ctx context.Context, tx PgxTx, keys ...namespace.Key) error {
	return o.lockTx(ctx, fromPgx(tx), keys, true)
}

// LockSQLTx is the function LockSQLTx with a wait or a mode of its own. Wait 0 = 15 s.
func (o Options) LockSQLTx(ctx context.Context, tx SQLTx, keys ...namespace.Key) error {
	return o.lockTx(ctx, fromSQL(tx), keys, false)
}

// TryLockSQLTx is the function TryLockSQLTx with a mode of its own.
func (o Options) TryLockSQLTx(ctx context.Context, tx SQLTx, keys ...namespace.Key) error {
	return o.lockTx(ctx, fromSQL(tx), keys, true)
}

func fromPgx(tx PgxTx) pgsession.Tx {
	if tx == nil {
		return nil
	}
	return pgsession.FromPgx(tx)
}

func fromSQL(tx SQLTx) pgsession.Tx {
	if tx == nil {
		return nil
	}
	return pgsession.FromSQL(tx)
}

// A txLock is one call that takes locks in a transaction.
type txLock struct {
	tx    pgsession.Tx
	mode  session.Mode
	keys  []namespace.Key // that are not taken yet
	start time.Time
	wait  time.Duration
}

func (o Options) lockTx(ctx context.Context, tx pgsession.Tx, keys []namespace.Key, try bool) error {
	switch {
	case tx == nil:
		return &ConfigError{"tx", nil, "pass an open transaction"}
	case o.Wait < 0:
		return &ConfigError{"Wait", o.Wait, "use a positive duration, 0 for 15s, or NoTimeout"}
	}
	keys, err := inOrder(keys)
	if err != nil {
		return err
	}
	l := &txLock{tx: tx, keys: keys, start: time.Now(), wait: cmp.Or(o.Wait, defaultTimeout)}
	if o.Shared {
		l.mode = session.Shared
	}
	if try {
		return l.failed(l.try(ctx))
	}
	return l.failed(l.lock(ctx))
}

// inOrder returns valid keys without doubles, in the order in which all calls take them.
func inOrder(keys []namespace.Key) ([]namespace.Key, error) {
	if len(keys) == 0 {
		return nil, &namespace.Error{Sentinel: namespace.ErrInvalidKey, Value: "no key", Reason: "there is nothing to lock: give at least one, and make no call where there is none"}
	}
	for _, key := range keys {
		if err := valid(key); err != nil {
			return nil, err
		}
	}
	keys = slices.Clone(keys)
	slices.SortFunc(keys, func(a, b namespace.Key) int { return a.Tag().Compare(b.Tag()) })
	return slices.CompactFunc(keys, func(a, b namespace.Key) bool { return a.Tag() == b.Tag() }), nil
}

func (l *txLock) try(ctx context.Context) error {
	n, err := pgsession.TxTry(ctx, l.tx, l.tags(), l.mode, true)
	l.keys = l.keys[n:]
	if err != nil || len(l.keys) == 0 {
		return err
	}
	holder, err := l.holder(ctx)
	if err != nil {
		return err
	}
	return &HeldError{Key: l.keys[0], Holder: holder}
}

// lock takes what is free, waits for the first that is not, and so on.
func (l *txLock) lock(ctx context.Context) error {
	for asked := false; ; {
		n, err := pgsession.TxTry(ctx, l.tx, l.tags(), l.mode, false)
		l.keys = l.keys[n:]
		if err != nil || len(l.keys) == 0 {
			return err
		}
		for granted := false; !granted; {
			if !asked { // a lock that ctx carries would be waited for in vain
				asked = true
				if _, err := l.holder(ctx); err != nil {
					return err
				}
			}
			limit := l.wait - time.Since(l.start)
			if limit <= 0 {
				return l.timeout(ctx)
			}
			if granted, err = pgsession.TxWait(ctx, l.tx, l.keys[0].Tag(), l.mode, limit); err != nil {
				return err
			}
		}
		if l.keys = l.keys[1:]; len(l.keys) == 0 {
			return nil
		}
	}
}

func (l *txLock) timeout(ctx context.Context) error {
	holder, err := l.holder(ctx)
	if err != nil {
		return err
	}
	return &TimeoutError{Key: l.keys[0], Waited: time.Since(l.start), Holder: holder, held: true}
}

func (l *txLock) tags() []namespace.Tag {
	tags := make([]namespace.Tag, len(l.keys))
	for i, key := range l.keys {
		tags[i] = key.Tag()
	}
	return tags
}

// holder asks who has the first key, nil if nobody has it now. The error is a
// *ReentrantError if ctx carries that very lock, on its session.
func (l *txLock) holder(ctx context.Context) (*Holder, error) {
	h, ok, err := pgsession.TxHolder(ctx, l.tx, l.keys[0].Tag())
	if err != nil || !ok {
		return nil, err
	}
	for outer, _ := ctx.Value(lockContextKey{}).(*Lock); outer != nil; outer, _ = outer.parent.Value(lockContextKey{}).(*Lock) {
		if key, ok := outer.holdsNow(l.keys[0].Tag()); ok && outer.PID() == h.PID {
			return nil, &ReentrantError{Key: l.keys[0], Held: key}
		}
	}
	return holderOf(h), nil
}

// failed types an error.
func (l *txLock) failed(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrHeld), errors.Is(err, ErrReentrant):
		return err
	case errors.Is(err, ErrLockTableFull):
		return &LockTableFullError{Key: l.keys[0], Cause: serverError(err)}
	case errors.Is(err, ErrNoTransaction), errors.Is(err, ErrUnsupported):
		return fmt.Errorf("advisory: lock %v: %w", l.keys[0], err)
	}
	return fmt.Errorf("advisory: lock %v in a transaction: %w", l.keys[0], err)
}
