package driver

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/leader/driver"
)

// A Term numbers an ownership. Each Term is greater than all earlier ones of the same shard, on every node.
// It is a fencing token.
type Term = driver.Term

// A Backend stores the shards of one group. Its methods are safe for concurrent use.
type Backend interface {
	// Sessions returns the number of sessions that a node should open, one or more. The node spreads its
	// shards over them, so that the end of one session costs only some of its shards.
	Sessions() int
	// Open opens a session for a node that announces itself as self. The session lasts for ttl from the start
	// of the call, and from the start of each successful Renew. An error that matches ErrPermanent of
	// leader/driver means that no later call succeeds until somebody fixes the cause. The text of an error
	// begins with the cause.
	Open(ctx context.Context, self Member, ttl time.Duration) (Session, error)
}

// ErrUnclaimable means that none of the names of a claim can be claimed now, for reasons that lie
// in these shards.
var ErrUnclaimable = errors.New("these shards cannot be claimed now")

// ErrSlow means that a claim took too long and was given up. Claims of fewer names may succeed.
var ErrSlow = errors.New("the claim took too long")

// A Session carries a part of the shards that a node owns, and its membership: a node is a member while one
// of its sessions lasts. With PostgreSQL it is a connection.
//
// One goroutine at a time calls its methods. Only Renew, Lost, Changed, Changes and Close may be called concurrently
// with any other call. ctx bounds a call: when ctx ends, the method returns soon.
type Session interface {
	// Announce changes the node's announcement.
	Announce(ctx context.Context, self Member) error

	// Look returns a view of all nodes. If the view's Version equals known, which is not 0, the other fields
	// may be empty. It should be one round trip.
	Look(ctx context.Context, known uint64) (View, error)

	// Claim makes one attempt for each name, and does not wait for other sessions. The caller passes only names
	// that the session does not own. Claim returns the names that the session owns now, in any order. Other
	// sessions own the rest.
	//
	// After an error the outcome is unknown, and the caller then calls Release for all names. An error that
	// matches ErrUnclaimable means that claims of other names may succeed. A Claim must not delay a Renew for
	// so long that the Renew fails. It gives up before that, with an error that matches ErrSlow. It should be
	// one round trip, terms included.
	Claim(ctx context.Context, names []string) ([]Grant, error)

	// Release gives up names, so that others can claim them at once. If the session does not own a name,
	// that is not an error, and the name stays unchanged. After an error, the ownership of the names ends
	// after the ttl at the latest. The session ensures that, if necessary by ending itself.
	Release(ctx context.Context, names []string) error

	// Renew extends the session, and everything it owns, until ttl after the start of the call. lost lists names
	// that the session no longer owns although the session lasts; it can come together with an error. An error
	// that matches ErrLost of leader/driver means that the session has ended. After any other error the caller may
	// try again.
	Renew(ctx context.Context, ttl time.Duration) (lost []string, err error)

	// Lost returns a channel that closes as soon as the client detects, without a request, that the session has
	// ended. nil = only Renew detects that.
	Lost() <-chan struct{}

	// Changed returns a channel that receives a value when something has changed: a shard became free, a node
	// came or went, or a pin changed. Signals may be missed, and none is required. nil = no signals.
	Changed() <-chan struct{}

	// Changes returns the changes that caused the signals since the last call. It does no I/O. If a signal comes
	// with no changes, the node does nothing.
	Changes() Changes

	// Leave releases everything the session owns, and ends the session in good order. Only Close is
	// called after it.
	Leave(ctx context.Context) error

	// Close drops the session at once without waiting for the network. The session's shards are free after
	// its ttl at the latest. Close may be called again.
	Close() error
}

// Changes are hints about what other nodes did. They may be out of date.
type Changes struct {
	Released []string // shards
	Leaving  []string // identities of nodes that have announced that they drain
	Other    bool     // something else makes a Look worthwhile
}

// And returns the changes of both.
func (c Changes) And(more Changes) Changes {
	return Changes{append(c.Released, more.Released...), append(c.Leaving, more.Leaving...), c.Other || more.Other}
}

// A Grant is a shard that a claim got.
type Grant struct {
	Name string
	Term Term
}

// A Binder is a Session that adds to the context of a shard's work the values that its guarded operations
// need.
type Binder interface {
	Bind(ctx context.Context, g Grant) context.Context
}

// An Operator is a Backend through which people move shards. Their orders stay until they change them, even
// while the node is absent.
type Operator interface {
	// Pin makes the member with this identity own a shard while the member is present. "" removes
	// the pin.
	Pin(ctx context.Context, shard, identity string) error
	// Drain makes the member with this identity give up its shards and claim nothing. Views show it as a
	// Member that is Draining. drain = false cancels the order.
	Drain(ctx context.Context, identity string, drain bool) error
}

// An Observer is a Backend whose shards can be listed without a node, as "pglatch shards ls" does. Listing
// them opens no Session, and has no effect on the nodes.
type Observer interface {
	// Observe returns a view of all nodes. The caller of Look is a node, which knows the names of its
	// shards. The caller of Observe does not know them, so the backend must store names, not only hashes.
	// For an unknown group, or an empty table or store, it returns an empty Observation and no error.
	Observe(ctx context.Context) (Observation, error)
}
