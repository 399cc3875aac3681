package driver

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/leader/driver"
)

// A Term numbers an ownership: each is greater than all before it of the same shard, on every
// node. It is a fencing token.
type Term = driver.Term

// A Backend is where shards of one group live. Its methods are safe for concurrent use.
type Backend interface {
	// Sessions is how many sessions a node is to open, one or more: what it owns is spread over
	// them, so that the end of one costs a part of it.
	Sessions() int
	// Open opens a session for a node that announces itself as self. It lasts for ttl from the
	// start of the call, and from the start of each good Renew. An error that matches
	// driver.ErrPermanent of leader/driver says that no later call succeeds until somebody changes
	// something. The text of an error begins with what is wrong.
	Open(ctx context.Context, self Member, ttl time.Duration) (Session, error)
}

// ErrUnclaimable says that none of the names of a claim can be claimed now, for reasons of their own.
var ErrUnclaimable = errors.New("these shards cannot be claimed now")

// ErrSlow says that a claim took too long and was given up. Claims of fewer names may succeed.
var ErrSlow = errors.New("the claim took too long")

// A Session carries a part of the shards that a node owns, and its membership: a node is a
// member while one of its sessions lasts. With PostgreSQL it is a connection.
//
// Its methods are called by one goroutine at a time, but for Renew, Lost, Changed and Close, which
// can be called beside any other. ctx bounds a call: when it ends the method returns soon.
type Session interface {
	// Announce changes what the node says of itself.
	Announce(ctx context.Context, self Member) error

	// Look returns what is to be seen of all nodes. If its Version would be known, which is not 0,
	// the rest may be left out. It should be one round trip.
	Look(ctx context.Context, known uint64) (View, error)

	// Claim makes one attempt for each name, none of which the session owns, and waits for nobody.
	// It returns those that the session owns now, in any order: the others are owned by another
	// session. After an error it is not known which: the caller then calls Release for all of them. An error that matches
	// ErrUnclaimable says that claims of other names may succeed. A Claim must
	// not keep a Renew waiting for so long that it fails: it gives up before, with an error that matches ErrSlow.
	// It should be one round trip, terms included.
	Claim(ctx context.Context, names []string) ([]Grant, error)

	// Release gives names up, so that others can claim them at once. A name that the session does
	// not own is no error, and is left as it is. After an error the names end by the ttl at the latest: the
	// session sees to that, if need be by its own end.
	Release(ctx context.Context, names []string) error

	// Renew prolongs the session, and with it all that it owns, to ttl from the start of the call.
	// lost are names that it owns no more though it lasts, also beside an error. An error that matches ErrLost of
	// leader/driver says that the session has ended; after any other it may be tried again.
	Renew(ctx context.Context, ttl time.Duration) (lost []string, err error)

	// Lost returns a channel that is closed when the session is known to have ended without being
	// asked to. nil = only Renew knows.
	Lost() <-chan struct{}

	// Changed returns a channel that gets a value when a Look is worthwhile: a shard became
	// free, a node came or went, another pin. Some may be missed, and none is needed. nil = there are none.
	Changed() <-chan struct{}

	// Leave releases all that the session owns, and ends it in good order. Nothing but Close is
	// called after it.
	Leave(ctx context.Context) error

	// Close drops the session at once without waiting for the network. What it owns is free at its
	// ttl at the latest. It may be called again.
	Close() error
}

// A Grant is a shard that a claim got.
type Grant struct {
	Name string
	Term Term
}

// A Binder is a Session that adds to the context of a shard's work what its guarded operations need.
type Binder interface {
	Bind(ctx context.Context, g Grant) context.Context
}

// A Passer is a Session that knows what became of what the node released. A node that gives up many shards waits with the next of
// them until others have claimed the last, so that each is left alone for a short time only.
type Passer interface {
	// Passed returns how many of these, which the node has released, were claimed since in a later term. It should be one round
	// trip.
	Passed(ctx context.Context, released []Grant) (int, error)
}

// An Operator is a Backend through which people move shards. What they say stays until they say
// otherwise, also while the node is away.
type Operator interface {
	// Pin has the member of this identity own a shard, as long as it takes part. "" ends that.
	Pin(ctx context.Context, shard, identity string) error
	// Drain has the member of this identity give up what it owns and claim nothing, in Views as a
	// Member that is Draining; false ends that.
	Drain(ctx context.Context, identity string, drain bool) error
}

// An Observer is a Backend that can be looked at by who takes no part: people, through
// "pglatch shards ls". It opens no Session, and no node notices.
type Observer interface {
	// Observe returns what is to be seen of all nodes. Unlike a Look it is not of a node, which
	// knows the names of its shards: the backend has to keep names, not hashes of them alone. A group of
	// which nothing is known yet, or whose table or store is empty, is an empty Observation and no error.
	Observe(ctx context.Context) (Observation, error)
}
