// Package session is the contract between a Locker and what its locks live on:
// a session that holds locks until it lets them go or dies. pgsession implements
// it on PostgreSQL, its package memory in memory.
package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/namespace"
)

// A Mode is how a lock is held.
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
	DefaultTTL = 15 * time.Second
	MinTTL     = 500 * time.Millisecond
	MaxTTL     = 24 * time.Hour
)

// PingTime is the time that a ping has at least to be answered, beside a LossDrain: with less, a busy
// processor is enough to lose a session.
const PingTime = 250 * time.Millisecond

// MaxLossDrain is by how much the deadline of a session with a lease of ttl can come earlier than it must. Pings go out each third of
// the lease, and a tenth is for clocks of different rates.
func MaxLossDrain(ttl time.Duration) time.Duration { return min(ttl*2/5, ttl-ttl/10-ttl/3-PingTime) }

// A State is how a session stands, as far as its owner can know.
type State uint8

// The states of a session, from good to gone. Doubtful ends in Lost, never later
// than the session's deadline.
const (
	Held     State = iota // a statement was answered in time
	Doubtful              // a ping is overdue
	Lost                  // the session, and every lock on it, is gone
)

func (s State) String() string { return [...]string{"held", "doubtful", "lost"}[s] }

// A Source makes sessions. Its methods are safe for concurrent use.
type Source interface {
	// Acquire returns a session without locks. ctx bounds the call only.
	Acquire(ctx context.Context) (Session, error)
	// Stats returns counters that only rise, but for Open.
	Stats() Stats
	// Close ends idle sessions at once and blocks until the others are given back.
	Close()
}

type sourceKey struct{}

// WithSource returns a context with which advisory.Open opens a Locker on these sessions,
// in place of PostgreSQL's. It is how a server in memory stands in for one.
func WithSource(ctx context.Context, source Source) context.Context {
	return context.WithValue(ctx, sourceKey{}, source)
}

// SourceOf returns what WithSource put into the context, or nil.
func SourceOf(ctx context.Context) Source {
	source, _ := ctx.Value(sourceKey{}).(Source)
	return source
}

type openedKey struct{}

// WithOpened returns a context with which advisory.Open passes the Source of the new Locker to opened: benchmarks
// see from its counters that sessions are watched while they measure.
func WithOpened(ctx context.Context, opened func(Source)) context.Context {
	return context.WithValue(ctx, openedKey{}, opened)
}

// Opened passes the Source of a new Locker to the function of WithOpened, if there is one.
func Opened(ctx context.Context, source Source) {
	if opened, ok := ctx.Value(openedKey{}).(func(Source)); ok {
		opened(source)
	}
}

// Stats counts what the sessions of a Source did.
type Stats struct {
	Open      int   // sessions that exist now
	Pings     int64 // answered pings
	Watches   int64 // watches begun
	PIDChecks int64 // answers whose backend pid was compared
	Lost      int64 // sessions that were lost, with or without a lock on them
	LockTable int   // locks that the server has room for, of all sessions; 0 = not known
	// Database is the same text for all Sources of this process whose locks exclude each other; "" = not known.
	Database string
}

// A Session carries locks. One goroutine at a time uses it: calls Do, Watch and Close.
// Look, Interrupt and Kill are for any goroutine at any time. Every method that talks
// to the server is bounded in time and takes no context: a statement about a lock is
// answered, or its session is closed. After a *LostError the session holds nothing.
type Session interface {
	// Do runs the operations, of which no two have one tag, and no try one that the
	// session holds, in one round trip, and fills in their results. Its error is a
	// *LostError, or ErrPending if the answer does not come within patience: then the
	// session is for nobody, until Do(nil, 0), which goes on waiting, has returned, on any
	// goroutine. It ends a watch.
	Do(ops []*Op, patience time.Duration) error
	// Interrupt ends an Op.Wait that is under way, or the next one, soon.
	Interrupt()
	// Look tells the state of the session now, which is time.Now(). If closely, it also
	// looks at what the server has sent, which can cost a system call.
	Look(now time.Time, closely bool) Status
	// Watch reports the session's loss to lost, once, from another goroutine, until the
	// next Do or Close.
	Watch(lost func(error))
	// Kill ends the session; its Watch, and a Do that is under way, report the cause.
	Kill(cause error)
	// Close gives the session back. It is used again if reuse is true, it lives and holds
	// no lock; else it ends, and with it every lock.
	Close(reuse bool)
}

// A Status is how a session stands, as far as its owner can know.
type Status struct {
	PID   uint32 // the server's number for the session
	State State
	Loss  error // why it is Lost. nil: it is not, or only its time is over
	// Verified is when a close look found it Held, and that the server had not ended it by what had reached this machine: within
	// VerifiedFor before the look. Zero can also mean that this is not known without a question to the server.
	Verified time.Time
}

// VerifiedFor is for how long a look at what the server sent is good. To look costs a
// system call, and a lock can pass on a million times in a second.
const VerifiedFor = 100 * time.Microsecond

// An Op is one operation: a try, a wait, a try of the first free one of several tags in
// exclusive mode, an unlock, a pass, a ping, or the question who holds a lock.
type Op struct {
	Tag    namespace.Tag
	Mode   Mode
	Unlock bool
	Ping   bool            // that it is answered is all
	Pass   bool            // Held: another session that had the turnstile would not be in the way
	Any    []namespace.Tag // in place of Tag; nil = none
	// Holder, if it is not nil, is filled in with who holds the lock, as far as this
	// session may see, if anybody does: Held.
	Holder *Holder
	// Wait, if it is not 0, is for how long at most the lock is waited for in the server's
	// queue: for one wait step, which is shorter if the server needs it. Such an operation is
	// alone, and awaited to its end.
	Wait time.Duration
	// Turnstile, a single key, must not be held in exclusive mode by another session, or
	// nothing is tried. It is for a pass, a try of Any and a shared try. Zero = none.
	Turnstile namespace.Tag

	Held  bool  // the answer to a try, a wait, a pass or a question
	Index int   // of Any, if Held
	Err   error // why it was not answered: nothing is held
}

// A Holder is what can be seen of a session that holds a lock. What the role may
// not see, or the server does not know, is zero.
type Holder struct {
	PID             uint32
	ApplicationName string
	ClientAddr      string // "" for a Unix socket, or hidden
	State           string // pg_stat_activity.state: "idle", "active", …
	Mode            Mode
	// BackendStart is when the session began: the lock was taken later. PostgreSQL
	// does not record when an advisory lock was granted.
	BackendStart time.Time
	// Prepared is the name of the prepared transaction that holds the lock, "" for a session:
	// then PID is 0, and BackendStart is when it was prepared.
	Prepared string
	Whose    Whose
}

// Whose says what holds a lock, as far as this process knows it.
type Whose uint8

// What of this process can hold a lock.
const (
	Unknown        Whose = iota // or it is of another process
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

	// ErrPending: the answer has not come yet.
	ErrPending = errors.New("no answer yet")
)

// A CapError says that a Source has as many locks as it may. It is an
// ErrLockTableFull.
type CapError struct{ Locks, MaxLocks, LockTable int }

func (e *CapError) Error() string {
	return fmt.Sprintf("lock table full: %d locks, and the cap is %d", e.Locks, e.MaxLocks)
}

// Is reports whether target is ErrLockTableFull.
func (e *CapError) Is(target error) bool { return target == ErrLockTableFull }

// A RefusedError says that the server answered and refuses this client, whatever it
// tries again with the same settings. It is an ErrRefused.
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

// A BeforeConnectError says that the program's own BeforeConnect failed. It is an ErrUnavailable: another try
// can help. Its text leaves that of the cause out, which can hold secrets; errors.Is and As find the cause.
type BeforeConnectError struct{ Cause error }

func (e *BeforeConnectError) Error() string {
	return fmt.Sprintf("BeforeConnect failed with a %T, whose text is left out because it can hold secrets: have BeforeConnect log it", e.Cause)
}

// Is reports whether target is ErrUnavailable.
func (e *BeforeConnectError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns what BeforeConnect returned.
func (e *BeforeConnectError) Unwrap() error { return e.Cause }

// An OtherServerError says that a server is not the one, or not the one any more, that the locks of a Source
// are on. It is an ErrOtherServer. As the error of a request, with Server, it is an ErrUnavailable, because the
// right server can come back; as the cause of a loss it is not, because something was done.
type OtherServerError struct {
	Server              string // its address; "" if the locks were on it until now
	System, KnownSystem string // system identifiers: the server's, and that of the locks
	Timeline            uint32 // the server's
	KnownTimeline       uint32 // the highest that was seen of KnownSystem
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

// A LostError says why a session, and every lock on it, is gone.
type LostError struct{ Cause error }

func (e *LostError) Error() string { return fmt.Sprintf("session lost: %v", e.Cause) }

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }
