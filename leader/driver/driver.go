// Package driver is the contract between an Elector of package leader and its
// backend, which says where leadership lives. Only who writes a backend imports it, as
// only who writes a database driver imports database/sql/driver; leadertest tests that
// the contract is kept.
//
// An Elector is the only caller of its backend and calls one method at a time, but for
// Leader of an Inspector. A backend must have the methods of Backend. What else it can do
// it says by further interfaces: Waiter, LossNotifier, Auditor, Termer, Successor, Binder, Inspector,
// Observer, Contest, Labeled, and io.Closer.
package driver

import (
	"context"
	"log/slog"
	"time"
)

// The times of an election: the ttl that an Elector passes to its backend is
// DefaultLeaseDuration, unless its Config says another, and within the other two.
const (
	DefaultLeaseDuration = 15 * time.Second
	MinLeaseDuration     = 500 * time.Millisecond
	MaxLeaseDuration     = 24 * time.Hour
)

// A Backend is where leadership of one election lives. An Elector is its only
// caller and calls one method at a time.
//
// ttl is how long leadership lasts without a renewal. ctx bounds a call: when it
// ends the method returns soon.
type Backend interface {
	// TryAcquire makes one attempt and does not wait for a leader to go. true means
	// that identity leads from the start of the call for ttl, unless it is renewed
	// or lost. false means that somebody else does. After an error it is unknown; the
	// Elector then calls Release, and Close of an io.Closer, before the next attempt.
	// An error that matches ErrPending says that the attempt is half done, has used up
	// ctx's time, and goes on with the next call. One that matches ErrPermanent says that
	// no later attempt succeeds until somebody changes the settings, the rights or the
	// store: Permanent marks it. The text of an error begins with what is wrong.
	TryAcquire(ctx context.Context, identity string, ttl time.Duration) (bool, error)
	// Renew prolongs leadership to ttl from the start of the call. It must fail if
	// leadership was lost since TryAcquire, even if identity leads again. An error
	// that matches ErrLost says that it is lost for certain; after any other it may be
	// tried again.
	Renew(ctx context.Context, identity string, ttl time.Duration) error
	// Release gives up whatever is held or half acquired; holding nothing is no error.
	// After an error the leadership ends by its ttl at the latest.
	Release(ctx context.Context, identity string) error
}

// A Backend may implement these interfaces as well, and io.Closer: Close drops
// everything at once, connections included, without waiting for the network, and
// the next TryAcquire starts anew. It may be called again.
type (
	// A Waiter knows when an attempt is worthwhile. Wait returns nil when leadership
	// may be free, and may then hold it already: the next TryAcquire or Release, one
	// of which always follows, settles that. When ctx ends it returns its error and
	// holds nothing new.
	Waiter interface {
		Wait(ctx context.Context) error
	}

	// A LossNotifier knows at once that leadership is gone. Lost returns a channel that
	// is closed then; it belongs to the last successful TryAcquire. From then on Renew
	// says at once what happened, also if ctx has ended.
	LossNotifier interface {
		Lost() <-chan struct{}
	}

	// An Auditor knows of problems that end no leadership and refuse no attempt: that the table which counts terms
	// is gone, for example, or that another election has the same key. Audit is called after good renewals and after
	// attempts that were refused, and does no I/O; nil = nothing is wrong. The error is reported, and the election goes on.
	Auditor interface {
		Audit() error
	}

	// A Termer counts leaderships. Term returns that of the last successful
	// TryAcquire, or the zero Term.
	Termer interface {
		Term() Term
	}

	// A Successor knows whether the leader before it ended in good order, that is by
	// Release, so that none of its work goes on. The answer belongs to the last successful
	// TryAcquire.
	Successor interface {
		CleanStart() bool
	}

	// A Binder adds to a leader's context what its guarded operations need. It belongs
	// to the last successful TryAcquire.
	Binder interface {
		Bind(ctx context.Context) context.Context
	}

	// An Inspector knows who leads. Leader is safe for concurrent use, beside the
	// other methods too. ok is false if nobody leads.
	Inspector interface {
		Leader(ctx context.Context) (holder Holder, ok bool, err error)
	}

	// An Observer knows who leads by what the other methods have open anyway, such as
	// the connection on which a follower waits. In other respects it is an Inspector. It
	// is called between an attempt that was refused and the next Wait.
	Observer interface {
		Observe(ctx context.Context) (holder Holder, ok bool, err error)
	}

	// A Contest knows whether another candidate leads or waits to. It is called after a
	// Release, by a node that would let others go first. An error means that it is not known.
	Contest interface {
		Contested(ctx context.Context) (bool, error)
	}

	// An Introspector shows the candidate to those who ask what goes on, from a Start until the
	// function that it returns, which blocks until the candidate is not called any more.
	Introspector interface {
		Introspect(c Candidate) (leave func())
	}

	// A Located backend names the database that has the election, so that metrics of two databases do
	// not mix: "db-1:5432/shop". It never blocks.
	Located interface {
		Database() string
	}

	// A Labeled backend has names of its own for the election, such as its key, which go
	// with each line that is logged about it. New calls LogAttrs once.
	Labeled interface {
		LogAttrs() []slog.Attr
	}
)

// A Holder is what can be seen of a leader. What the backend does not know is zero.
type Holder struct {
	Identity string
	Term     Term
	Since    time.Time // begin of the term, by the backend's clock
	Detail   string    // what else helps to find it: "pid 4711, 10.0.0.7"
}
