// Package driver is the contract between an Elector of package leader and its backend, which stores the
// leadership. Only authors of a backend import it, just as only authors of a database driver import
// database/sql/driver. Package leadertest tests whether a backend keeps the contract.
//
// An Elector is the only caller of its backend. It calls one method at a time, with one exception: Leader of
// an Inspector may be called at any time. A backend must have the methods of Backend. It can have further
// abilities, by implementing optional interfaces: Waiter, LossNotifier, Auditor, Termer, Successor, Binder,
// Inspector, Observer, Contest, Introspector, Located, Labeled, and io.Closer.
package driver

import (
	"context"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/renew"
)

// The default and the limits of an election's ttl. An Elector passes its backend DefaultLeaseDuration, unless
// its Config sets another ttl between the minimum and the maximum.
const (
	DefaultLeaseDuration = renew.DefaultDuration // 15 s
	MinLeaseDuration     = renew.MinDuration     // 500 ms
	MaxLeaseDuration     = renew.MaxDuration     // 24 h
)

// A Backend stores the leadership of one election. An Elector is its only caller and calls one method at a
// time.
//
// ttl is how long leadership lasts without a renewal. ctx bounds a call: when ctx ends, the method returns
// soon.
type Backend interface {
	// TryAcquire makes one attempt and does not wait for a leader to go. true means that identity leads for
	// ttl from the start of the call, unless it renews or loses leadership. false means that another node
	// leads. After an error the outcome is unknown. The Elector then calls Release, and Close of an
	// io.Closer, before the next attempt.
	//
	// An error that matches ErrPending means that the attempt is only half done: it has used up ctx's time,
	// and the next call continues it. An error that matches ErrPermanent means that no later attempt
	// succeeds until somebody changes the settings, the rights or the store; Permanent marks such an error.
	// The text of an error begins with the cause.
	TryAcquire(ctx context.Context, identity string, ttl time.Duration) (bool, error)
	// Renew extends leadership until ttl after the start of the call. It must fail if leadership was lost
	// since TryAcquire, even if identity leads again. An error that matches ErrLost means that leadership
	// is certainly lost. After any other error the Elector may try again.
	Renew(ctx context.Context, identity string, ttl time.Duration) error
	// Release gives up leadership, or whatever a half-done attempt holds. If nothing is held, that is not an
	// error. After an error the leadership ends by its ttl at the latest.
	Release(ctx context.Context, identity string) error
}

// A Backend may also implement these interfaces, and io.Closer. Close drops everything at once, connections
// included, without waiting for the network. The next TryAcquire starts afresh. Close may be called again.
type (
	// A Waiter detects when an attempt is worthwhile. Wait returns nil when leadership may be free. The
	// backend may then already hold leadership: the Elector always calls TryAcquire or Release next, which
	// uses it or gives it up. When ctx ends, Wait returns ctx's error and holds nothing new.
	Waiter interface {
		Wait(ctx context.Context) error
	}

	// A LossNotifier detects a loss of leadership at once. Lost returns a channel that is closed when
	// leadership is lost. The channel belongs to the last successful TryAcquire. Once it is closed, Renew
	// returns the reason at once, even if ctx has ended.
	LossNotifier interface {
		Lost() <-chan struct{}
	}

	// An Auditor detects problems that do not end leadership or make an attempt fail. For example, the
	// table that counts terms is gone, or another election has the same key. The Elector calls Audit after
	// successful renewals and after refused attempts. Audit does no I/O; nil = no problem. The Elector
	// reports the error, and the election continues.
	Auditor interface {
		Audit() error
	}

	// A Termer numbers leaderships. Term returns the term of the last successful TryAcquire, or the zero
	// Term.
	Termer interface {
		Term() Term
	}

	// A Successor knows whether the previous leader ended in good order, that is by Release, so that none of
	// its work continues. The answer belongs to the last successful TryAcquire.
	Successor interface {
		CleanStart() bool
	}

	// A Binder adds to a leader's context the values that its guarded operations need. They belong to the
	// last successful TryAcquire.
	Binder interface {
		Bind(ctx context.Context) context.Context
	}

	// An Inspector finds the leader. Leader is safe for concurrent use, even together with the other
	// methods. ok is false if nobody leads.
	Inspector interface {
		Leader(ctx context.Context) (holder Holder, ok bool, err error)
	}

	// An Observer finds the leader over a resource that the other methods have open anyway, such as the
	// connection on which a follower waits. In all other respects, it is like an Inspector. The Elector
	// calls it between a refused attempt and the next Wait.
	Observer interface {
		Observe(ctx context.Context) (holder Holder, ok bool, err error)
	}

	// A Contest detects whether another candidate leads or waits to lead. A node that gives way to others
	// calls it after Release. An error means that the answer is unknown.
	Contest interface {
		Contested(ctx context.Context) (bool, error)
	}

	// An Introspector shows the candidate to those who query its status, from Start until the returned
	// function is called. When that function has returned, no method of the candidate is called any
	// more.
	Introspector interface {
		Introspect(c Candidate) (leave func())
	}

	// A Located backend names the database that stores the election, such as "db-1:5432/shop", so that
	// metrics of two databases stay apart. Database never blocks.
	Located interface {
		Database() string
	}

	// A Labeled backend has further log attributes for the election, such as its key. Each log line about the
	// election has them. New calls LogAttrs once.
	Labeled interface {
		LogAttrs() []slog.Attr
	}
)

// A Holder describes a leader. Fields that the backend does not know are zero.
type Holder struct {
	Identity string
	Term     Term
	Since    time.Time // start of the term, by the backend's clock
	Detail   string    // further details that help to find it: "pid 4711, 10.0.0.7"
}
