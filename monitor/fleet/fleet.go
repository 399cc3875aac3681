// Package fleet describes what programs keep in tables in addition to their locks: groups of shards, ticks,
// mailboxes and leases. A monitor.Config.Fleet reads it.
package fleet

import (
	"time"

	"github.com/pglatch/pglatch/namespace"
)

// A Fleet is the content of a database's tables at one moment.
type Fleet struct {
	Groups    []Group   `json:"groups,omitempty"`
	Jobs      []Job     `json:"jobs,omitempty"`
	Mailboxes []Mailbox `json:"mailboxes,omitempty"`
	Leases    []Lease   `json:"leases,omitempty"`
	// More is true if the tables have more than a Fleet shows.
	More bool `json:"more,omitempty"`
	// Problems lists the tables that could not be read, and why.
	Problems []string `json:"problems,omitempty"`

	// Locks names locks whose key is a hash.
	Locks map[namespace.Tag]Lock `json:"-"`
}

// Empty reports whether there is nothing to show.
func (f *Fleet) Empty() bool {
	return f == nil || len(f.Groups)+len(f.Jobs)+len(f.Mailboxes)+len(f.Leases)+len(f.Problems) == 0
}

// A Kind is the use of a lock.
type Kind string

// The kinds of locks that tables name.
const (
	ShardLock Kind = "shard"   // or the lock that the members of a group share
	GuardLock Kind = "guard"   // that guarded transactions share
	TickLock  Kind = "tick"    // that excludes other claims of a tick
	NodeLock  Kind = "mailbox" // that a node of a mailbox holds while it serves
)

// A Lock is the name of a lock.
type Lock struct {
	Kind  Kind
	Text  string // "tenant/acme", "nightly-report at 2026-01-02 03:00"
	Group string // of shards
}

// A Group is a group of shards.
type Group struct {
	Name   string `json:"group"` // "tenant=7"
	Shards int    `json:"shards"`
	Owned  int    `json:"owned"`
	// Certain: the shards are exactly those in the common list of all nodes.
	Certain bool `json:"certain"`
	// Moves is how many shards changed their owner in the last minute, as far as the reader has
	// seen.
	Moves int     `json:"moves"`
	Nodes []Node  `json:"nodes"`
	List  []Shard `json:"list"`
}

// A Node is a member of a group.
type Node struct {
	Identity string `json:"identity"`
	Weight   int    `json:"weight"`
	Owned    int    `json:"owned"`
	Fair     int    `json:"fair"`
	Draining bool   `json:"draining,omitempty"`
	Drained  bool   `json:"drained,omitempty"` // by an operator
	Away     bool   `json:"away,omitempty"`
	Refuses  bool   `json:"refuses,omitempty"` // it cannot claim some shards now
}

// A Shard is a shard of a group.
type Shard struct {
	Name  string `json:"shard"`
	Owner string `json:"owner,omitempty"` // "" = nobody
	Term  string `json:"term,omitempty"`
	Pin   string `json:"pinned_to,omitempty"`
}

// A Job is the name of a series of ticks, with the outcome of the newest ones.
type Job struct {
	Name string `json:"job"`
	Last Run    `json:"last"` // the newest
	// Every is the time between ticks; 0 = they are not regular, and the fields that follow are unknown. Only the
	// program knows the schedule itself.
	Every  time.Duration `json:"every_ns,omitempty"`
	Next   time.Time     `json:"next,omitzero"`
	Missed []time.Time   `json:"missed,omitempty"` // ticks that nobody ran, the newest first
}

// A Run is the outcome of a tick.
type Run struct {
	Tick  time.Time `json:"tick"`
	State string    `json:"state"` // "RUNNING", "RAN", "FAILED", "OPEN"
	Node  string    `json:"node,omitempty"`
	Token uint64    `json:"token,omitempty"`
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
}

// A Mailbox describes a mailbox of package turns, and the nodes that serve it.
type Mailbox struct {
	Name      string        `json:"mailbox"`
	Namespace string        `json:"namespace"`
	Messages  int64         `json:"messages"` // that wait, those of running turns too
	Ready     int64         `json:"ready"`    // entities
	Running   int64         `json:"running"`
	Stopped   int64         `json:"stopped"`
	Dead      int64         `json:"dead"`
	Oldest    time.Duration `json:"oldest_ns"` // for how long the next entity has been ready
	Nodes     []string      `json:"nodes"`
	Turns     []Turn        `json:"turns"` // that run, the oldest first
}

// A Turn is a turn that is running.
type Turn struct {
	Entity  string        `json:"entity"`
	Node    string        `json:"node"`
	Attempt int           `json:"attempt"`
	Age     time.Duration `json:"age_ns"`
}

// A Lease is a lease in the database's store, or of a lock server.
type Lease struct {
	Name     string        `json:"name"`
	State    string        `json:"state"` // "HELD", "FREE", "EXPIRED"
	Holder   string        `json:"holder,omitempty"`
	Token    uint64        `json:"token"`
	Acquired time.Time     `json:"acquired,omitzero"`
	Left     time.Duration `json:"left_ns,omitempty"`
	// Waiters is how many requests wait for it; nil = unknown. Only a lock server knows: a table does not have them.
	Waiters *int `json:"waiters,omitempty"`
}
