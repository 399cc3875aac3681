package advisory

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A PgxTx has the methods that LockTx needs of a transaction; pgx.Tx has them. Pools and
// connections have them too, and are rejected with ErrNoTransaction.
type PgxTx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// A SQLTx has the methods that LockSQLTx needs of a transaction. *sql.Tx has them, and so do the
// transactions of libraries built on it: sqlx, bun, sqlc, GORM (its tx.Statement.ConnPool), ent
// (with its feature sql/execquery). Pools and connections have them too, and are rejected with
// ErrNoTransaction.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// LockTx takes the locks on keys in a transaction of the caller. PostgreSQL releases them with
// the commit or rollback, at the instant when the changes become visible. The locks conflict
// with every other lock on the keys in the same database, unless both locks are shared. LockTx
// needs no Locker, and there is no handle to release. It works through poolers in session and
// transaction mode. A rollback to a savepoint that is older than a lock releases the lock.
//
// LockTx asks the server whether there is a transaction. The type of tx does not matter: a
// connection on which BEGIN was sent counts as a transaction, and a transaction in which COMMIT
// was sent does not. Outside a transaction nothing stays locked, and the error matches
// ErrNoTransaction. On a standby nothing is locked either, and the error matches ErrStandby.
//
// Free keys cost two round trips in all, three in shared mode. Each key that LockTx has to wait
// for costs three more, and then the keys after it cost two more.
//
// LockTx takes the keys in a fixed order, whatever the order of the arguments, so two calls never
// deadlock. Equal keys count once. It waits for at most TxOptions.Wait, for all keys together. If
// ctx has a deadline, the wait ends 100 ms before it, so that the error can name the holder. If
// less than 400 ms is left, the wait takes at most three quarters of that time. If the session or
// the transaction has set a shorter lock_timeout, that timeout ends the wait for a key. A
// lock_timeout that is only a default of the role or database does not.
//
// LockTx queues behind the Lockers and transactions that are already waiting, and no reader
// overtakes a waiting writer. Like a call of pg_advisory_xact_lock, a wait is one statement. Here,
// a statement waits for at most a minute, and then another one follows. statement_timeout does not
// end the wait. Until the wait ends, the transaction has a snapshot that VACUUM sees, and
// log_lock_waits logs the wait. CREATE INDEX CONCURRENTLY waits for the end of the whole
// transaction.
//
// After these errors the transaction can continue, and settings such as lock_timeout are unchanged:
//
//   - *HeldError: TxOptions.Try is set, and a key is held. Nothing was locked.
//   - *TimeoutError: the wait timed out. The error names the holder. It matches
//     context.DeadlineExceeded if ctx's deadline ended the wait. The transaction keeps the locks
//     that it got before.
//   - ErrDeadlock: transactions wait for each other, and PostgreSQL detected that after
//     deadlock_timeout, 1 s by default. The transaction is not aborted and keeps the locks that it
//     got before: roll it back, so that the others can continue. If the cycle includes another
//     statement, such as an UPDATE that waits for a row, PostgreSQL may end that statement
//     instead, with 40P01. A cycle that includes a Locker's lock is not detected, and ends with a
//     *TimeoutError.
//   - ErrReentrant: ctx carries a lock of a Locker, and that lock conflicts with a key. Nothing
//     was locked. A ctx never carries the locks that LockTx took. So a call that waits for its
//     own transaction times out, and the *TimeoutError says that a transaction of this process
//     holds the key.
//   - namespace.ErrInvalidKey: there is no key, or an invalid one. Nothing was locked.
//
// If the server accepts calls to the advisory lock functions but locks nothing, the error matches
// errors.ErrUnsupported. Any other error comes from the driver, or is ErrLockTableFull. After
// ErrLockTableFull, PostgreSQL has aborted the transaction.
//
// If ctx is canceled during the wait, the driver ends the transaction: pgx closes its connection. If ctx reaches
// its deadline, the driver does so only if this process has not read the server's answer 2 s later. So a process
// that is stopped for that long, for example by SIGSTOP, also loses its transaction. database/sql ends a
// transaction when the context that BeginTx received ends. In isolation levels above read committed, the
// transaction's snapshot can be older than the lock, so take the lock first.
func LockTx(ctx context.Context, tx PgxTx, options TxOptions, keys ...namespace.Key) error {
	return options.lock(ctx, fromPgx(tx), keys)
}

// LockSQLTx is LockTx for database/sql and the libraries built on it.
func LockSQLTx(ctx context.Context, tx SQLTx, options TxOptions, keys ...namespace.Key) error {
	return options.lock(ctx, fromSQL(tx), keys)
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
	all   []namespace.Key
	keys  []namespace.Key // not taken yet
	start time.Time
	wait  time.Duration
	early bool // the wait ends because ctx's deadline is near
}

// If the context of a statement reaches its deadline, the driver ends the connection, and the
// transaction with it.
const (
	beforeDeadline = 100 * time.Millisecond // a wait ends this long before ctx's deadline, to leave time for a query for the holder
	afterDeadline  = 2 * time.Second        // how long after ctx's deadline a late statement may still be answered
)

func (o TxOptions) lock(ctx context.Context, tx pgsession.Tx, keys []namespace.Key) error {
	switch {
	case tx == nil:
		return &ConfigError{"tx", nil, "pass an open transaction"}
	case o.Wait < 0:
		return &ConfigError{"Wait", o.Wait, "use a positive duration, 0 for 15s, or NoTimeout"}
	case o.Try && o.Wait != 0:
		return &ConfigError{"Wait", o.Wait, "leave it out with Try, which does not wait"}
	}
	keys, err := inOrder(keys)
	if err != nil {
		return err
	}
	txNames.note(keys)
	l := &txLock{tx: tx, all: keys, keys: keys, start: time.Now(), wait: cmp.Or(o.Wait, defaultTimeout)}
	if o.Shared {
		l.mode = session.Shared
	}
	if ctx.Err() != nil {
		return l.failed(ctx.Err())
	}
	ctx, done := l.bounded(ctx)
	defer done()
	if err = l.reentrant(ctx); err == nil {
		if o.Try {
			err = l.try(ctx)
		} else {
			err = l.lock(ctx)
		}
	}
	return l.failed(err)
}

// bounded ends the wait before ctx's deadline. It returns a context whose own deadline comes after
// ctx's. If ctx is canceled, so is the returned context.
func (l *txLock) bounded(ctx context.Context) (late context.Context, done func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	left := deadline.Sub(l.start)
	if left -= min(beforeDeadline, left/4); left < l.wait {
		l.wait, l.early = left, true
	}
	late, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(afterDeadline))
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel()
		}
	})
	return late, func() { stop(); cancel() }
}

// inOrder validates keys, removes duplicates, and sorts them in the order in which all calls take
// them.
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
	if err != nil {
		return err
	}
	if l.keys = l.keys[n:]; len(l.keys) == 0 {
		return nil
	}
	holder, err := l.holder(ctx)
	if err != nil {
		return err
	}
	return &HeldError{Key: l.keys[0], Holder: holder}
}

// lock takes the free keys, waits for the first that is not free, and so on.
func (l *txLock) lock(ctx context.Context) error {
	for {
		n, err := pgsession.TxTry(ctx, l.tx, l.tags(), l.mode, false)
		if err != nil {
			return err
		}
		if l.keys = l.keys[n:]; len(l.keys) == 0 {
			return nil
		}
		if err := l.waitFirst(ctx); err != nil {
			return err
		}
		if l.keys = l.keys[1:]; len(l.keys) == 0 {
			return nil
		}
	}
}

// waitFirst waits for the first key.
func (l *txLock) waitFirst(ctx context.Context) error {
	for began := time.Now(); ; {
		limit := l.wait - time.Since(l.start)
		if limit <= 0 {
			return l.timeout(ctx, "")
		}
		end, err := pgsession.TxWait(ctx, l.tx, l.keys[0].Tag(), l.mode, limit, time.Since(began))
		switch {
		case err != nil || end.Granted:
			return err
		case end.LockTimeout != "":
			return l.timeout(ctx, end.LockTimeout)
		case end.Deadlock == "":
			continue
		}
		cycle, err := pgsession.TxCycle(ctx, l.tx, end.Deadlock)
		if err != nil {
			return err
		}
		if cycle != nil { // else the cycle goes through a connection that others use too: they may end it
			return l.deadlock(cycle)
		}
	}
}

// deadlock returns the error for a cycle of waits, whose first step is this transaction's.
func (l *txLock) deadlock(cycle []pgsession.CycleStep) error {
	e := &deadlockError{}
	var text strings.Builder
	for i, step := range cycle {
		h := Holder{PID: step.PID, ApplicationName: step.ApplicationName}
		if i == 0 {
			fmt.Fprintf(&text, "%v, this transaction, waits for ", &h)
		} else {
			fmt.Fprintf(&text, "; in its way is %v, which waits for ", &h)
		}
		key := l.keys[0]
		if i > 0 {
			key = l.named(step.Tag)
		}
		if !key.Valid() {
			text.WriteString("what is no advisory lock")
			continue
		}
		fmt.Fprintf(&text, "lock %v", key)
		e.Cycle = append(e.Cycle, key)
	}
	e.Across = text.String() + "; in its way is this transaction"
	return e
}

// named returns the key with this tag, by name if this process knows it: a recent call of LockTx had
// the key, or it is an integer entity of a namespace of this call's keys.
func (l *txLock) named(tag namespace.Tag) namespace.Key {
	for _, key := range l.all {
		if key.Tag() == tag {
			return key
		}
	}
	if key, ok := txNames.of(tag); ok {
		return key
	}
	if number, id, ok := tag.Pair(); ok && number != 0 {
		for _, key := range l.all {
			if n := key.Namespace(); n.Number() == int(number) {
				return n.ID(int64(id))
			}
		}
	}
	if !tag.Valid() {
		return namespace.Key{}
	}
	return keyOf(tag)
}

// reentrant rejects a key that ctx carries a lock on, of any Locker. It does so if two conditions
// hold. The server has that lock on one of its sessions, in this database. And the lock is in the
// way: it excludes the new one, or a writer waits for it, and this call would wait behind that
// writer.
func (l *txLock) reentrant(ctx context.Context) error {
	for _, key := range l.keys {
		for outer, _ := ctx.Value(lockContextKey{}).(*Lock); outer != nil; outer, _ = outer.parent.Value(lockContextKey{}).(*Lock) {
			name, ok := outer.holdsNow(key.Tag())
			if !ok {
				continue
			}
			held, writer, err := pgsession.TxHeldBy(ctx, l.tx, key.Tag(), outer.pids())
			if err != nil {
				return err
			}
			if held && (l.mode == session.Exclusive || !outer.Shared() || writer) {
				return &reentrantError{Key: key, Held: name}
			}
		}
	}
	return nil
}

// pids returns the process IDs of the sessions that a complete lock is on.
func (l *Lock) pids() []uint32 {
	var pids []uint32
	for _, n := range l.hold.Conns() {
		pids = append(pids, connOf(n).pid)
	}
	return pids
}

// timeout returns the error for the end of the wait for the first key. lockTimeout is the
// transaction's lock_timeout if that ended the wait, else "".
func (l *txLock) timeout(ctx context.Context, lockTimeout string) error {
	holder, err := l.holder(ctx)
	if err != nil {
		return err
	}
	e := &TimeoutError{Key: l.keys[0], Waited: time.Since(l.start), Holder: holder, held: true}
	switch {
	case lockTimeout != "":
		e.remark = "the transaction's lock_timeout of " + lockTimeout + " ended the wait"
	case l.early:
		e.Cause = context.DeadlineExceeded
	}
	return e
}

func (l *txLock) tags() []namespace.Tag {
	tags := make([]namespace.Tag, len(l.keys))
	for i, key := range l.keys {
		tags[i] = key.Tag()
	}
	return tags
}

// holder returns the holder of the first key, nil if nobody holds it now.
func (l *txLock) holder(ctx context.Context) (*Holder, error) {
	h, ok, err := pgsession.TxHolder(ctx, l.tx, l.keys[0].Tag())
	if err != nil || !ok {
		return nil, err
	}
	return holderOf(h), nil
}

// failed returns the typed error of a call.
func (l *txLock) failed(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrHeld), errors.Is(err, ErrReentrant), errors.Is(err, ErrDeadlock):
		return err
	case errors.Is(err, ErrLockTableFull):
		return &lockTableFullError{Key: l.keys[0], Cause: serverError(err)}
	case errors.Is(err, ErrNoTransaction), errors.Is(err, session.ErrUnsupported), errors.Is(err, ErrStandby):
		return fmt.Errorf("advisory: lock %v: %w", l.keys[0], err)
	}
	return fmt.Errorf("advisory: lock %v in a transaction: %w", l.keys[0], err)
}
