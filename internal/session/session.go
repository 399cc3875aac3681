// Package session is the contract between a Locker and the sessions of its locks. A session holds locks until it
// releases them or dies. Package pgsession implements the contract on PostgreSQL, and package memory implements
// it in memory.
package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/namespace"
)

// A Mode is the mode of a lock.
type Mode uint8

// The modes of an advisory lock.
const (
	Exclusive Mode = iota
	Shared
)

func (m Mode) String() string {
	if m == Shared {
		return "shared"
	}
	return "exclusive"
}

// How long a session lives without a statement: the default, and the limits.
const (
	DefaultTTL = renew.DefaultDuration
	MinTTL     = renew.MinDuration
	MaxTTL     = renew.MaxDuration
)

// Times returns the times of a session. Its renewals are pings, and a ping that takes longer than the Timeout makes the
// session Doubtful.
func Times(ttl, lossDrain time.Duration) renew.Times {
	return renew.Times{Duration: ttl, Interval: ttl / 3, Timeout: ttl / 6, Drain: lossDrain}
}

// PingTime is the shortest time allowed for the answer to a ping, in addition to a LossDrain. With less, a busy
// processor could cause the loss of a session.
const PingTime = 250 * time.Millisecond

// MaxLossDrain is how much earlier than necessary the deadline of a session with a lease of ttl can be.
func MaxLossDrain(ttl time.Duration) time.Duration {
	t := Times(ttl, 0)
	return (t.Slack() - max(t.Timeout, PingTime)).Truncate(time.Microsecond)
}

// A State is the state of a session, as far as its owner can know.
type State uint8

// The states of a session, from good to gone. A Doubtful session without an answer becomes Lost, at its deadline at the
// latest.
const (
	Held     State = iota // a statement was answered in time
	Doubtful              // a ping is overdue
	Lost                  // the session, and every lock on it, is gone
)

func (s State) String() string { return [...]string{"held", "doubtful", "lost"}[s] }

// A Source makes sessions. Its methods are safe for concurrent use.
type Source interface {
	// Acquire returns a session without locks. ctx bounds only the call.
	Acquire(ctx context.Context) (Session, error)
	// Stats returns counters that only increase, except Open.
	Stats() Stats
	// Close ends idle sessions at once and blocks until the others are returned.
	Close()
}

// WithSource returns a context with which advisory.Open opens a Locker on these sessions instead of PostgreSQL's. A
// server in memory is used this way.
func WithSource(ctx context.Context, source Source) context.Context {
	return WithOpener(ctx, func(func() (Source, error)) (Source, error) { return source, nil })
}

type openerKey struct{}

// WithOpener returns a context with which advisory.Open gets its Source from opener, which can call open for PostgreSQL's
// sessions.
func WithOpener(ctx context.Context, opener func(open func() (Source, error)) (Source, error)) context.Context {
	return context.WithValue(ctx, openerKey{}, opener)
}

// Open returns the Source of a new Locker: that of the context's opener, or else the result of open.
func Open(ctx context.Context, open func() (Source, error)) (Source, error) {
	if opener, ok := ctx.Value(openerKey{}).(func(func() (Source, error)) (Source, error)); ok {
		return opener(open)
	}
	return open()
}

// Stats counts the work of a Source's sessions.
type Stats struct {
	Open      int   // sessions that exist now
	Pings     int64 // answered pings
	Watches   int64 // watches begun
	PIDChecks int64 // answers whose backend pid was compared
	Lost      int64 // sessions that were lost, with or without a lock on them
	LockTable int   // locks that the server has room for, of all sessions; 0 = unknown
	// Database is the same text for all Sources of this process whose locks exclude each other; "" = unknown.
	Database string
}

// A Session carries locks. One goroutine at a time uses it, that is, calls Do, Watch and Close. Any goroutine may call
// Look, Interrupt and Kill at any time. Every method that contacts the server is bounded in time and takes no context:
// either a statement about a lock is answered, or its session is closed. After a *LostError the session holds nothing.
type Session interface {
	// Do runs the operations in one round trip, and fills in their results. No two of them have one tag, and no try is
	// for a lock that the session holds. The error is a *LostError, or ErrPending if the answer does not arrive within
	// patience. After ErrPending the session must not be used until Do(nil, 0), on any goroutine, has waited for the
	// answer and returned. Do ends a watch.
	Do(ops []*Op, patience time.Duration) error
	// Interrupt ends a current Op.Wait, or the next one, soon.
	Interrupt()
	// Look returns the state of the session at now, which is time.Now(). If closely, it also checks the data that the
	// server has sent, which can cost a system call.
	Look(now time.Time, closely bool) Status
	// Watch reports the session's loss to lost, once, from another goroutine, until the next Do or Close.
	Watch(lost func(error))
	// Kill ends the session; its Watch, and a current Do, report the cause.
	Kill(cause error)
	// Close returns the session to its Source. It is reused if reuse is true, it is alive and it holds no lock.
	// Otherwise it ends, and with it every lock.
	Close(reuse bool)
}

// A Status is the state of a session, as far as its owner can know.
type Status struct {
	PID   uint32 // the process id of the session's server process
	State State
	Loss  error // why it is Lost. nil: it is not, or only its time is over
	// Verified is when a close look last found that the session was Held and that the server had sent no message that
	// it had ended. That was at most VerifiedFor before this look. Zero can also mean that this is unknown without a
	// query.
	Verified time.Time
}

// VerifiedFor is how long a check of the server's data stays valid. A check costs a system call, and a lock can be
// handed over a million times in a second.
const VerifiedFor = 100 * time.Microsecond

// An Op is one operation: a try, a wait, an unlock, a pass, a ping, or a query for the holder of a lock. A try can
// be of the first free one of several tags, in exclusive mode.
type Op struct {
	Tag    namespace.Tag
	Mode   Mode
	Unlock bool
	Ping   bool            // only an answer is wanted
	Pass   bool            // Held: no other session's hold of the turnstile blocks it
	Any    []namespace.Tag // instead of Tag; nil = none
	// Holder, if not nil, is filled in with the holder of the lock, as far as this session may see. Held reports
	// whether there is one.
	Holder *Holder
	// Wait, if not 0, is the limit of a wait for the lock in the server's queue. The wait is one wait step, which is
	// shorter if the server needs that. Such an operation is the only one of its Do, which returns when it has
	// ended.
	Wait time.Duration
	// Turnstile is a single key. If another session holds it in exclusive mode, nothing is tried. It is for a pass, a
	// try of Any and a shared try. Zero = none.
	Turnstile namespace.Tag

	Held  bool  // the result of a try, a wait, a pass or a query
	Index int   // of Any, if Held
	Err   error // why there was no result: nothing is held
}

// A Holder is the visible data of a session that holds a lock. Data that the role may not see, or that the server does
// not know, is zero.
type Holder struct {
	PID             uint32
	ApplicationName string
	ClientAddr      string // "" for a Unix socket, or hidden
	State           string // pg_stat_activity.state: "idle", "active", …
	Mode            Mode
	// BackendStart is when the session began; the lock was taken later. PostgreSQL does not record when an advisory
	// lock was granted.
	BackendStart time.Time
	// Prepared is the name of the prepared transaction that holds the lock, "" for a session. For a prepared
	// transaction PID is 0, and BackendStart is when it was prepared.
	Prepared string
	Whose    Whose
}

// Whose is the kind of a lock's holder, as far as this process knows it.
type Whose uint8

// The kinds of holders in this process.
const (
	Unknown        Whose = iota // or it belongs to another process
	OurLocker                   // a session of a Locker
	OurTransaction              // a transaction of the caller's (LockTx)
)

// The conditions that sessions report.
var (
	ErrLost          = errors.New("lock lost")
	ErrClosed        = errors.New("the Locker is closed: call Close after its last use, or Open another")
	ErrUnavailable   = errors.New("PostgreSQL unavailable")
	ErrRefused       = errors.New("PostgreSQL refuses this client")
	ErrPooler        = errors.New("connection goes through a transaction pooler")
	ErrStandby       = errors.New("server is a standby")
	ErrLockTableFull = errors.New("lock table full")
	ErrNoTransaction = errors.New("not in a transaction")
	ErrUnsupported   = fmt.Errorf("the server has no advisory locks: %w", errors.ErrUnsupported)
	ErrOtherServer   = errors.New("the server is another than before")

	// ErrSilent and ErrNotHeld are causes of losses.
	ErrSilent  = errors.New("no answer from the server before the deadline")
	ErrNotHeld = errors.New("the server no longer held the lock for this session")

	// ErrPending: the answer has not arrived yet.
	ErrPending = errors.New("no answer yet")
)

// A CapError means that a Source has reached its limit of locks. It is an ErrLockTableFull.
type CapError struct{ Locks, MaxLocks, LockTable int }

func (e *CapError) Error() string {
	return fmt.Sprintf("lock table full: %d locks, and the cap is %d", e.Locks, e.MaxLocks)
}

// Is reports whether target is ErrLockTableFull.
func (e *CapError) Is(target error) bool { return target == ErrLockTableFull }

// A RefusedError means that the server answered and refuses this client; retries with the same settings do not help. It
// is an ErrRefused.
type RefusedError struct {
	Problem string // in the server's words
	Remedy  string
	Cause   error
}

func (e *RefusedError) Error() string { return e.Problem + ": " + e.Remedy }

// Is reports whether target is ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Unwrap returns the driver's error.
func (e *RefusedError) Unwrap() error { return e.Cause }

// A BeforeConnectError means that the program's own BeforeConnect failed. It is an ErrUnavailable: a retry can help.
// Its text omits that of the cause, which can contain secrets; errors.Is and As find the cause.
type BeforeConnectError struct{ Cause error }

func (e *BeforeConnectError) Error() string {
	return fmt.Sprintf("BeforeConnect failed with a %T, whose text is left out because it can hold secrets: have BeforeConnect log it", e.Cause)
}

// Is reports whether target is ErrUnavailable.
func (e *BeforeConnectError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns the error of BeforeConnect.
func (e *BeforeConnectError) Unwrap() error { return e.Cause }

// An OtherServerError means that a server is not, or no longer, the one with the locks of a Source. It is an
// ErrOtherServer. As the error of a request, it has a Server and also matches ErrUnavailable, because the right
// server can come back. As the cause of a loss, it does not match ErrUnavailable, because work was done under the
// lock.
type OtherServerError struct {
	Server              string // its address; "" if the locks were on it until now
	System, KnownSystem string // system identifiers: the server's, and that of the locks
	Timeline            uint32 // the server's
	KnownTimeline       uint32 // the highest seen of KnownSystem
}

func (e *OtherServerError) Error() string {
	server := "the server"
	if e.Server != "" {
		server += " at " + e.Server
	}
	if e.System != e.KnownSystem {
		return fmt.Sprintf("%s has the system identifier %s, and this Locker's has %s: it is another database cluster, with other locks; "+
			"if the database was moved there (pg_upgrade, a dump, a copy), close the Locker and open another", server, e.System, e.KnownSystem)
	}
	return fmt.Sprintf("%s is on timeline %d, and this Locker has met timeline %d: a standby was promoted, which has other locks; "+
		"stop the old primary, or, if the database was put back to it on purpose, close the Locker and open another", server, e.Timeline, e.KnownTimeline)
}

// Is reports whether target is ErrOtherServer or, of a request, ErrUnavailable.
func (e *OtherServerError) Is(target error) bool {
	return target == ErrOtherServer || target == ErrUnavailable && e.Server != ""
}

// A LostError means that a session, and every lock on it, is gone.
type LostError struct{ Cause error }

func (e *LostError) Error() string { return fmt.Sprintf("session lost: %v", e.Cause) }

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }
