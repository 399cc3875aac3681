package monitor

import (
	"net/netip"
	"time"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// A Snapshot is what one query saw. Its slices and pointers are shared with other
// viewers and must not be changed; Locks itself is the caller's. All times are
// those of the server's clock, in UTC, but HeldSince.At of a library. JSON has the
// field names of the tags.
type Snapshot struct {
	// Locks stands in the order of the keys; for each key first those who hold it,
	// then those who wait, in the order of their queue: also those of pglatch, of whom
	// all but the first wait for another lock in PostgreSQL, the key's turnstile.
	Locks []Lock `json:"locks"`
	// Total is the number of Locks.
	Total  int    `json:"total"`
	Server Server `json:"server"`
	// Partial is true when PostgreSQL hid columns of some session, because the
	// monitor's role is neither a member of that session's role nor of
	// pg_read_all_stats. Hidden names them; they are null there.
	Partial bool     `json:"partial"`
	Hidden  []string `json:"hidden,omitempty"`

	// Answers are what the processes said, within a second before; for programs: nothing in
	// them is redacted. They are empty if processes cannot be asked.
	Answers introspect.Answers `json:"-"`
}

// A Server is where and when a Snapshot was taken.
type Server struct {
	Version  string    `json:"version"` // "17.2", or with the packager's addition
	Database string    `json:"database"`
	Now      time.Time `json:"now"`
	// Standby: the locks of this server exclude nobody on the primary, whose locks are not seen here.
	Standby bool `json:"standby,omitempty"`
}

// A Lock is one session's hold of, or wait for, one advisory lock. PostgreSQL does
// not distinguish session-scoped and transaction-scoped locks, nor how many times a
// session took a lock.
type Lock struct {
	// PID is the session's process. 0 = none: a prepared transaction holds the lock.
	PID             uint32 `json:"pid"`
	ApplicationName string `json:"application_name"`
	// State is that of pg_stat_activity: "active", "idle", "idle in transaction"…; nil when hidden.
	State *string `json:"state"`
	// QueryStart is when the session's present or, if it is idle, last statement
	// began. It says nothing about the lock; nil when hidden.
	QueryStart *time.Time `json:"query_start"`
	// BackendStart is when the session began; nil when hidden.
	BackendStart *time.Time `json:"backend_start"`
	// ClientAddr is nil unless Config.ClientAddr asks for it, and on a Unix socket.
	ClientAddr *netip.Addr `json:"client_addr,omitempty"`

	// Namespace is the name that Config.Namespaces gives to the key, or a process that holds
	// it or waits for it; for a pair without one its first number; nil for a bigint without one. A key may be
	// another program's that chose the same number: it is a reading, not a proof.
	Namespace *string `json:"namespace"`
	// EntityID is the second number of a pair, as text; of a bigint, which is a hash, what a process
	// says of it, or nil.
	EntityID *string `json:"entity_id"`
	Key      Key     `json:"key"`
	// Mode is "ExclusiveLock" or "ShareLock".
	Mode string `json:"mode"`

	Granted bool `json:"granted"`
	// WaitStart is when the wait began: by the process that waits, or else the present wait at the server, which
	// is nil for an instant after it began, and between two waits of the first in the queue, because pglatch
	// waits in steps of under a second. It is nil for a holder.
	WaitStart *time.Time `json:"wait_start"`
	// HeldSince is nil for a waiter.
	HeldSince *HeldSince `json:"held_since"`
	// Duration, in seconds, is how long a holder has held the lock by HeldSince, or a
	// waiter has waited since WaitStart (0 without it). It is never the age of a statement.
	Duration float64 `json:"duration"`
	// BlockedBy names the sessions that a waiter waits for: those who hold the lock
	// in a mode that conflicts and those ahead of it in the queue. 0 = a prepared transaction.
	BlockedBy []uint32 `json:"blocked_by"`
	// Blocks names the waiters for this key whose BlockedBy has this session.
	Blocks []uint32 `json:"blocks"`

	// Silent: the session is of a process that listens to questions and does not answer: it is stopped, cut off, or out of CPU.
	Silent bool `json:"silent,omitempty"`

	// Tag identifies the lock in this database; for programs.
	Tag namespace.Tag `json:"-"`

	stateChange *time.Time
	shown       bool   // Redact left its id as it is
	silentBy    uint32 // the listening session of the process that is silent
}

// A Key is a lock's key as SQL takes it. What Config.Redact hides is nil.
type Key struct {
	Kind string `json:"kind"`           // "pair" or "single"
	Key1 *int32 `json:"key1,omitempty"` // of a pair
	Key2 *int32 `json:"key2,omitempty"` // of a pair
	// Bigint is that of a single key; a string in JSON, whose numbers are exact to 2⁵³ only.
	Bigint *int64 `json:"bigint,omitempty,string"`
	// Text is "agent/42" for a key with a name, else "1:100" or "@12345".
	Text string `json:"text"`
}

// HeldSince says since when a lock is held, and how this is known.
type HeldSince struct {
	At     time.Time `json:"at"`
	Source Source    `json:"source"`
}

// A Source says how the time of a HeldSince is known.
type Source string

const (
	// SourceLibrary means that Config.HeldSince said when the lock was taken, by the clock of this process.
	SourceLibrary Source = "library"
	// SourceProcess means that the process that holds the lock said for how long it had.
	SourceProcess Source = "process"
	// SourceFirstSeen means that the Monitor first saw the lock then, and in every query since; or that its session, idle
	// at the first look, had done nothing since then. It may have been taken any time before; and between two queries it may have been
	// released and taken again.
	SourceFirstSeen Source = "first_seen"
)
