package advisory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// Conditions, for errors.Is. HeldError, TimeoutError, LostError and ConfigError have fields that a program
// can act on. The other errors state their facts only in the text.
var (
	// ErrHeld: somebody else holds the key.
	ErrHeld = errors.New("advisory: lock is held")
	// ErrTimeout: the wait ended without the lock.
	ErrTimeout = errors.New("advisory: timed out waiting for lock")
	// ErrReentrant: the context already carries a lock on the key. That lock stays held. It belongs to this
	// Locker, or to another Locker of the process on the same database. Two databases count as the same if
	// the server's system identifier and the database's oid are equal, as in a copy of the server's files.
	// To detect that, the role must be allowed to call pg_control_system().
	ErrReentrant = errors.New("advisory: lock is already held by this context")
	// ErrReleased: the lock was released before.
	ErrReleased = errors.New("advisory: lock was already released")
	// ErrDeadlock: the wait would close a cycle of waits inside this process, or is part of a cycle through
	// other processes. The text lists the waiters of the cycle, with the key that each waits for.
	ErrDeadlock = errors.New("advisory: deadlock")
	// ErrPoolExhausted: every connection of the lock pool was in use. With more than one lock per connection,
	// every connection was full. If the request timed out while it waited for a connection, the error also
	// matches ErrTimeout. A nested request does not wait, because the holders of the other connections may be
	// waiting too.
	ErrPoolExhausted = errors.New("advisory: lock pool exhausted")

	// ErrLost: the lock ended before its release. leader.ErrLost (for leadership) and leasehttp.ErrLost (for
	// a lease) are different errors, so that work that needs several of them can tell which one ended.
	ErrLost = session.ErrLost
	// ErrClosed: the Locker is closed.
	ErrClosed = session.ErrClosed
	// ErrUnavailable: PostgreSQL could not be reached, or has no free connection now. A later attempt can
	// succeed.
	ErrUnavailable = session.ErrUnavailable
	// ErrRefused: PostgreSQL answered, but refuses this client. Possible reasons are a wrong password, no
	// such role or database, no matching line in pg_hba.conf, a missing privilege, or a login trigger that
	// raises an error. The error can also mean that this client refuses the server, because it cannot verify
	// the server's certificate. Retries fail until somebody changes the settings or the server. If the
	// server sent a *pgconn.PgError, the error wraps it.
	ErrRefused = session.ErrRefused
	// ErrPooler: the connection goes through a transaction pooler, where session locks leak. Connect directly
	// or through a pool in session mode. A lock in a transaction works through such a pooler, unless the
	// driver keeps prepared statements. In that case the call fails with this error, and the error's text
	// says how to turn them off.
	ErrPooler = session.ErrPooler
	// ErrStandby: the server is a standby. It has locks of its own, so it would grant a key that is
	// held on the primary.
	ErrStandby = session.ErrStandby
	// ErrLockTableFull: the server has no room for another lock, or the Locker has reached its own limit.
	ErrLockTableFull = session.ErrLockTableFull
	// ErrNoTransaction: the tx passed to LockTx or LockSQLTx is not in a transaction, so PostgreSQL would
	// release the lock at the end of the statement that takes it. Nothing is locked.
	ErrNoTransaction = session.ErrNoTransaction
	// ErrOtherServer: the Locker reached a server that does not have the locks of the server it used before:
	// an old primary that came back after a promotion, or another database cluster. If a request returns this
	// error, the error also matches ErrUnavailable. A Locker that reaches a promoted standby continues there.
	// It loses the locks that it held on the old primary, with an ErrOtherServer as the cause.
	ErrOtherServer = session.ErrOtherServer
)

// A Holder describes the holder of a lock, as far as this process may see it. Fields that PostgreSQL hides
// from the role, or does not know, are zero.
type Holder struct {
	Local bool   // this Locker holds it
	PID   uint32 // of the server session; 0 for a prepared transaction
	// Prepared is the name of a prepared transaction (PREPARE TRANSACTION), which holds the lock without a
	// session. COMMIT PREPARED or ROLLBACK PREPARED ends it. "" for a session.
	Prepared        string
	ApplicationName string
	ClientAddr      string // "" for a Unix socket
	State           string // pg_stat_activity.state: "idle", "active", …
	Shared          bool
	// If Local, Since is the time at which the lock was granted. PostgreSQL does not record this time for
	// the locks of other processes. For those, SessionSince is the time at which the holder's session
	// began, and the lock was granted after that. For a prepared transaction, SessionSince is the time at
	// which it was prepared, and the lock was granted before that.
	Since, SessionSince time.Time

	whose session.Whose
}

func (h *Holder) String() string {
	var b strings.Builder
	if h.Prepared != "" {
		fmt.Fprintf(&b, "prepared transaction %q", h.Prepared)
		if !h.SessionSince.IsZero() {
			fmt.Fprintf(&b, ", prepared at %s", h.SessionSince.Format(time.RFC3339Nano))
		}
		return b.String() + ", until COMMIT PREPARED or ROLLBACK PREPARED"
	}
	fmt.Fprintf(&b, "backend %d", h.PID)
	if h.ApplicationName != "" {
		fmt.Fprintf(&b, " (%s)", h.ApplicationName)
	}
	if h.ClientAddr != "" {
		fmt.Fprintf(&b, " at %s", h.ClientAddr)
	}
	switch {
	case h.Local:
		fmt.Fprintf(&b, ", this process, since %s", h.Since.Format(time.RFC3339Nano))
	case !h.SessionSince.IsZero():
		fmt.Fprintf(&b, ", in a session since %s", h.SessionSince.Format(time.RFC3339Nano))
	}
	switch h.whose {
	case session.OurLocker:
		b.WriteString(", of another Locker of this process")
	case session.OurTransaction:
		b.WriteString(", in a transaction of this process")
	}
	return b.String()
}

// A HeldError means that a call that does not wait found the lock held. It matches ErrHeld.
type HeldError struct {
	Key    namespace.Key
	Holder *Holder // nil if the holder has released the lock since, or if the Locker could not query it; the error's text then says so

	unknown string // why the holder is unknown
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("advisory: lock %v is held%s%s", e.Key, by(e.Holder), because(e.unknown))
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// A TimeoutError means that a wait ended without the lock. It matches ErrTimeout, ErrHeld if somebody
// holds the key, and the cause of the context if the context ended the wait.
type TimeoutError struct {
	Key    namespace.Key
	Waited time.Duration
	Holder *Holder // nil if nobody holds the lock now, if the holder is unknown (the error's text then says so), or if the wait was for a slot
	Cause  error   // context.Cause if the context ended the wait; context.DeadlineExceeded from LockTx, because its wait ends before ctx does

	// Slots is how many slots the semaphore has, or 0 if the wait was not for a slot. All slots were held
	// at the last check. Holders lists the holders of the first slots: ten at most, and fewer if the
	// Locker could not query all of them in a quarter of a second.
	Slots   int
	Holders []Holder

	held   bool   // also when the holder is unknown
	remark string // why the holder is unknown, or what ended the wait
}

func (e *TimeoutError) Error() string {
	if e.Slots > 0 {
		return e.slotText()
	}
	text := fmt.Sprintf("advisory: timed out after %v waiting for lock %v%s", e.Waited.Round(time.Millisecond), e.Key, by(e.Holder))
	switch {
	case e.Holder == nil:
	case e.Holder.Local || e.Holder.whose == session.OurLocker:
		text += "; if the holder is an outer call of this one, pass it the context of Do or Lock.Context"
	case e.Holder.whose == session.OurTransaction:
		text += "; if that is the caller's own transaction, it has the lock already, and nothing inside it needs to take it"
	}
	text += because(e.remark)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// slotText is the text for a semaphore.
func (e *TimeoutError) slotText() string {
	text := fmt.Sprintf("advisory: timed out after %v waiting for a slot of %v: %d of %d slots were held",
		e.Waited.Round(time.Millisecond), e.Key, e.Slots, e.Slots)
	if len(e.Holders) > 0 {
		names := make([]string, len(e.Holders))
		for i := range e.Holders {
			names[i] = e.Holders[i].String()
		}
		text += " by " + strings.Join(names, "; ")
		if more := e.Slots - len(names); more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
	}
	text += because(e.remark)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Is reports whether target is ErrTimeout, or ErrHeld while the key is held.
func (e *TimeoutError) Is(target error) bool {
	return target == ErrTimeout || target == ErrHeld && (e.held || e.Holder != nil)
}

// Unwrap returns the cause of the context if the context ended the wait, otherwise nil.
func (e *TimeoutError) Unwrap() error { return e.Cause }

// A poolExhaustedError says that every connection of the lock pool was in use. With more than one lock per
// connection, every connection was full. It matches ErrPoolExhausted. If the wait for a connection ran out,
// it also matches ErrTimeout and the context's cause.
type poolExhaustedError struct {
	Key      namespace.Key
	MaxConns int
	Waited   time.Duration
	// Outer are the locks that the caller held, each on a connection. A nested request does not wait for a
	// connection, because the holders of the others may be waiting too.
	Outer []namespace.Key
	Cause error
}

func (e *poolExhaustedError) Error() string {
	if len(e.Outer) > 0 {
		return fmt.Sprintf("advisory: no connection for lock %v inside %v: the lock pool is at its limit (%d); "+
			"raise MaxConns above the number of nested locks, or take them with AcquireAll", e.Key, e.Outer, e.MaxConns)
	}
	return fmt.Sprintf("advisory: no connection for lock %v after %v: the lock pool is at its limit (%d); raise MaxConns, or hold locks for less long",
		e.Key, e.Waited.Round(time.Millisecond), e.MaxConns)
}

// Is reports whether target is ErrPoolExhausted, or ErrTimeout after a wait.
func (e *poolExhaustedError) Is(target error) bool {
	return target == ErrPoolExhausted || target == ErrTimeout && len(e.Outer) == 0
}

// Unwrap returns the cause of the context if the context ended the wait, otherwise nil.
func (e *poolExhaustedError) Unwrap() error { return e.Cause }

// A lockTableFullError says that there is no room for a lock on the key. Either the server is full, and then
// has room for nobody's locks, or the Locker has reached its own limit, which prevents that. It matches
// ErrLockTableFull.
type lockTableFullError struct {
	Key namespace.Key
	// Locks is how many locks the Locker held or requested, and MaxLocks is its limit. Both are zero if the
	// server refused.
	Locks, MaxLocks int
	// LockTable is the number of locks that the server has room for: max_locks_per_transaction ×
	// (max_connections + max_prepared_transactions). 0 = unknown.
	LockTable int
	Cause     error // the server's error; nil if the Locker refused
}

func (e *lockTableFullError) Error() string {
	table := "max_locks_per_transaction × (max_connections + max_prepared_transactions)"
	if e.LockTable > 0 {
		table += fmt.Sprintf(" = %d", e.LockTable)
	}
	if e.Cause == nil {
		return fmt.Sprintf("advisory: lock %v: the Locker is at its limit of %d locks (MaxLocks), of the %s that the server has room for; "+
			"hold locks for less long, or raise max_locks_per_transaction and MaxLocks", e.Key, e.MaxLocks, table)
	}
	return fmt.Sprintf("advisory: lock %v: the server's lock table is full: it has room for %s, of all sessions; raise max_locks_per_transaction: %v",
		e.Key, table, e.Cause)
}

// Is reports whether target is ErrLockTableFull.
func (e *lockTableFullError) Is(target error) bool { return target == ErrLockTableFull }

// Unwrap returns the server's error, or nil.
func (e *lockTableFullError) Unwrap() error { return e.Cause }

// tableFull returns the typed error for an ErrLockTableFull.
func (c *core) tableFull(key namespace.Key, err error) error {
	e := &lockTableFullError{Key: key, LockTable: c.source.Stats().LockTable}
	if own, ok := errors.AsType[*session.CapError](err); ok {
		e.Locks, e.MaxLocks = own.Locks, own.MaxLocks
		return e
	}
	e.Cause = serverError(err)
	return e
}

// serverError returns the server's own error if another error wraps it.
func serverError(err error) error {
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		return server
	}
	return err
}

// A reentrantError says that the context already carries a lock on the key, which stays held. It matches
// ErrReentrant, which says which locks count.
type reentrantError struct {
	Key  namespace.Key
	Held namespace.Key // the lock that the context carries; its label can be another
}

func (e *reentrantError) Error() string {
	return fmt.Sprintf("advisory: lock %v is already held by this context (as %v); advisory locks of pglatch are not re-entrant", e.Key, e.Held)
}

// Is reports whether target is ErrReentrant.
func (e *reentrantError) Is(target error) bool { return target == ErrReentrant }

// A deadlockError names a cycle. The caller waits for Cycle[0], whose holder waits for Cycle[1], and so on.
// The last key is one that the caller holds. It matches ErrDeadlock.
type deadlockError struct {
	// If the cycle goes through other processes, only the keys of this process have names in Cycle. In a cycle of
	// transactions, those are the keys of its recent calls of LockTx. It remembers a thousand at most.
	Cycle []namespace.Key
	// Across lists the waits of a cycle through several processes, with their names for the keys, or through
	// several transactions (LockTx). "" = the cycle is inside this process.
	Across string
}

func (e *deadlockError) Error() string {
	if e.Across != "" {
		return "advisory: deadlock: " + e.Across + "; take several locks in one call, with AcquireAll or LockTx"
	}
	names := make([]string, len(e.Cycle))
	for i, k := range e.Cycle {
		names[i] = k.String()
	}
	return "advisory: deadlock: the holder of each waits for the next: " + strings.Join(names, " → ") + ", which this caller holds; take several locks with AcquireAll"
}

// Is reports whether target is ErrDeadlock.
func (e *deadlockError) Is(target error) bool { return target == ErrDeadlock }

// A LostError means that a lock ended before its release. It is the cause of the lock's context,
// matches ErrLost, and wraps the reason why the session ended.
type LostError struct {
	Key   namespace.Key
	Held  time.Duration // from the grant until the loss was detected
	Cause error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("advisory: lock %v lost after %v: %v", e.Key, e.Held.Round(time.Millisecond), e.Cause)
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the reason why the session ended.
func (e *LostError) Unwrap() error { return e.Cause }

// because formats a remark for an error's text.
func because(remark string) string {
	if remark == "" {
		return ""
	}
	return " (" + remark + ")"
}

func by(h *Holder) string {
	if h == nil {
		return ""
	}
	return " by " + h.String()
}

// closedError is the error of a call on a closed Locker, or of one that Close interrupted.
func closedError(key namespace.Key) error { return fmt.Errorf("advisory: lock %v: %w", key, ErrClosed) }

// canceled is the error of a wait whose context ended, but not by a deadline.
func canceled(ctx context.Context, key namespace.Key) error {
	return fmt.Errorf("advisory: waiting for lock %v: %w", key, context.Cause(ctx))
}
