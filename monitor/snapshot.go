package monitor

import (
	"net/netip"
	"time"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/namespace"
)

// A Snapshot is the result of one query. Its slices and pointers are shared with other viewers and must not be changed;
// Locks itself is the caller's. All times are from the server's clock, in UTC, except HeldSince.At of a library. The
// tags are the field names in JSON.
type Snapshot struct {
	// Locks is in the order of the keys. For each key it has first the holders, then the waiters in the order of their
	// queue. This includes waiters of pglatch; all but the first of them wait in PostgreSQL for another lock, the key's
	// turnstile.
	Locks []Lock `json:"locks"`
	// Total is the number of Locks.
	Total  int    `json:"total"`
	Server Server `json:"server"`
	// Partial is true if PostgreSQL hid columns of some session, because the monitor's role is a member neither of
	// that session's role nor of pg_read_all_stats. Hidden names these columns, which are null there.
	Partial bool     `json:"partial"`
	Hidden  []string `json:"hidden,omitempty"`

	// Answers are the processes' answers, at most a second older than the query. They are for programs: nothing in
	// them is redacted. They are empty if processes cannot be asked.
	Answers introspect.Answers `json:"-"`

	// Fleet is the latest result of Config.Fleet; nil = none. Its texts can be shown to viewers, and ids are
	// redacted.
	Fleet *fleet.Fleet `json:"-"`
}

// A Server identifies the server and the time of a Snapshot.
type Server struct {
	Version  string    `json:"version"` // "17.2", or with the packager's addition
	Database string    `json:"database"`
	Now      time.Time `json:"now"`
	// Standby: the locks of this server exclude nobody on the primary, whose locks are not visible here.
	Standby bool `json:"standby,omitempty"`
}

// A Lock is one session's hold of, or wait for, one advisory lock. PostgreSQL does not show whether a lock is
// session-scoped or transaction-scoped, or how many times a session took it.
type Lock struct {
	// PID is the session's process. 0 = none: a prepared transaction holds the lock.
	PID             uint32 `json:"pid"`
	ApplicationName string `json:"application_name"`
	// State is the state in pg_stat_activity: "active", "idle", "idle in transaction"…; nil when hidden.
	State *string `json:"state"`
	// QueryStart is the start of the session's current or, if it is idle, last statement. It says nothing about the
	// lock; nil when hidden.
	QueryStart *time.Time `json:"query_start"`
	// BackendStart is when the session began; nil when hidden.
	BackendStart *time.Time `json:"backend_start"`
	// ClientAddr is nil unless Config.ClientAddr asks for it, and on a Unix socket.
	ClientAddr *netip.Addr `json:"client_addr,omitempty"`

	// Namespace is the name of the key's namespace, from Config.Namespaces or from a process that holds the key or
	// waits for it. Without a name, it is the first number of a pair, and nil for a bigint. Another program may have
	// chosen the same number: the name is an interpretation, not a proof.
	Namespace *string `json:"namespace"`
	// EntityID is the second number of a pair, as text. For a bigint, which is a hash, it is the id that a process
	// reports, or nil.
	EntityID *string `json:"entity_id"`
	Key      Key     `json:"key"`
	// Mode is "ExclusiveLock" or "ShareLock".
	Mode string `json:"mode"`

	Granted bool `json:"granted"`
	// WaitStart is when the wait began, as reported by the waiting process. Without such a report it is the start of
	// the current wait at the server. That time is nil for an instant after the wait began. It is also nil between two
	// waits of the first waiter in the queue, because pglatch waits in steps of under a second. WaitStart is nil for a
	// holder.
	WaitStart *time.Time `json:"wait_start"`
	// HeldSince is nil for a waiter.
	HeldSince *HeldSince `json:"held_since"`
	// Duration, in seconds, is how long a holder has held the lock according to HeldSince, or how long a waiter has
	// waited since WaitStart (0 without it). It is never the age of a statement.
	Duration float64 `json:"duration"`
	// BlockedBy lists the sessions that a waiter waits for: holders in a conflicting mode, and waiters ahead of it in
	// the queue that want a conflicting mode. 0 = a prepared transaction.
	BlockedBy []uint32 `json:"blocked_by"`
	// Blocks lists the waiters for this key whose BlockedBy contains this session.
	Blocks []uint32 `json:"blocks"`

	// Silent: the session's process listens for questions but does not answer. It is stopped, cut off, or gets no
	// CPU time.
	Silent bool `json:"silent,omitempty"`

	// Tag identifies the lock in this database; for programs.
	Tag namespace.Tag `json:"-"`

	stateChange *time.Time
	shown       bool   // Redact did not change its id
	silentBy    uint32 // the listening session of the silent process
}

// A Key is a lock's key as SQL functions take it. Fields that Config.Redact hides are nil.
type Key struct {
	Kind string `json:"kind"`           // "pair" or "single"
	Key1 *int32 `json:"key1,omitempty"` // of a pair
	Key2 *int32 `json:"key2,omitempty"` // of a pair
	// Bigint is the number of a single key; a string in JSON, whose numbers are exact only up to 2⁵³.
	Bigint *int64 `json:"bigint,omitempty,string"`
	// Text is "agent/42" for a key with a name, otherwise "1:100" or "@12345".
	Text string `json:"text"`
}

// HeldSince is the time since which a lock has been held, and the source of that time.
type HeldSince struct {
	At     time.Time `json:"at"`
	Source Source    `json:"source"`
}

// A Source is the source of a HeldSince.
type Source string

const (
	// SourceProcess means that the process that holds the lock reported how long it had held it.
	SourceProcess Source = "process"
	// SourceFirstSeen means that the Monitor saw the lock for the first time then, and has seen it in every query since. Or
	// it means that the session was idle at the first query, and had done nothing since that time. The lock may have been
	// taken at any time before that. Between two queries, it may have been released and taken again.
	SourceFirstSeen Source = "first_seen"
)
