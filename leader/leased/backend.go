package leased

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/lease"
)

// A Backend elects a leader with the lease of one name. It implements
// driver.Backend, driver.Waiter, driver.Termer and driver.Inspector. Its methods are
// for one goroutine at a time, but for Leader, which is for any.
type Backend struct {
	store  Store
	config Config

	identity string // of the last attempt; "" = none yet
	ttl      time.Duration

	// At most one of held and asked is set.
	held  *lease.Claim // nil = nothing that is known of
	leads bool         // held is what the last successful TryAcquire got
	stale bool         // what is held or asked for is of an earlier leadership, to be ended
	asked *asking      // nil = nothing

	term driver.Term // of the last successful TryAcquire
}

var _ interface {
	driver.Backend
	driver.Waiter
	driver.Termer
	driver.Inspector
	driver.Labeled
} = (*Backend)(nil)

// New returns a Backend on a store, which stays the caller's, without asking it
// anything. It fails if a field of config is invalid.
func New(store Store, config Config) (*Backend, error) {
	config, err := config.validated(store)
	if err != nil {
		return nil, err
	}
	return &Backend{store: store, config: config}, nil
}

// LogAttrs is the lock's name.
func (b *Backend) LogAttrs() []slog.Attr { return []slog.Attr{slog.String("lock", b.config.Name)} }

// TryAcquire asks once for the lease, and makes sure that it lasts for ttl. After an
// error the lease may be held, or the request be under way, all the same: the next TryAcquire with the same
// identity adopts what it gets, and Release ends it. Otherwise it expires.
func (b *Backend) TryAcquire(ctx context.Context, identity string, ttl time.Duration) (bool, error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if b.leads || b.identity != identity { // a new leadership is a new lease
		b.leads, b.stale = false, true
	}
	if b.stale {
		if err := b.settle(ctx); err != nil {
			return false, err
		}
		b.stale = false
	}
	b.identity, b.ttl = identity, ttl
	switch err := b.win(ctx); {
	case errors.Is(err, lease.ErrHeld):
		return false, nil
	case permanent(err):
		return false, driver.Permanent(err)
	case err != nil:
		return false, err
	}
	b.leads, b.term = true, driver.TermOf(b.held.Token)
	return true, nil
}

// win gets a lease that lasts for ttl.
func (b *Backend) win(ctx context.Context) error {
	if b.held != nil { // Wait got it, some time ago
		if err := b.prolong(ctx); !errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	l, fresh, err := b.acquire(ctx, 0)
	if err == nil && (!fresh || l.Remaining < b.ttl) { // an earlier attempt got it
		err = b.prolong(ctx)
	}
	return err
}

// Renew prolongs the lease of the last successful TryAcquire, and no other.
func (b *Backend) Renew(ctx context.Context, _ string, ttl time.Duration) error {
	if !b.leads {
		return fmt.Errorf("%w: no lease of %s is held", driver.ErrLost, b.config.Name)
	}
	b.ttl = ttl
	return b.prolong(ctx)
}

// prolong renews what is held; an error that matches ErrLost says that nothing is
// any more.
func (b *Backend) prolong(ctx context.Context) error {
	l, err := b.store.Renew(ctx, lease.RenewRequest{Claim: *b.held, TTL: wholeMilliseconds(b.ttl)})
	switch {
	case over(err):
		b.held, b.leads = nil, false
		return fmt.Errorf("%w: %w", driver.ErrLost, err)
	case err != nil:
		return fmt.Errorf("leader: renewing the lease of %s: %w", b.config.Name, err)
	case l.Remaining < b.ttl:
		return driver.Permanent(fmt.Errorf("leader: the store grants a lease of %v on %s: use a LeaseDuration of no more", l.Remaining, b.config.Name))
	}
	return nil
}

// Release ends the lease that is held. If it is not known whether one is, it waits for
// the answer under way for half of ctx's time, and then asks the store once more.
func (b *Backend) Release(ctx context.Context, _ string) error { return b.settle(ctx) }

// Term returns the fencing token of the last leadership's lease, which is its
// Uint64, or the zero Term.
func (b *Backend) Term() driver.Term { return b.term }

// Leader returns who has the lease. That can be a candidate that got it this moment and
// does not know yet.
func (b *Backend) Leader(ctx context.Context) (holder driver.Holder, ok bool, err error) {
	r, err := b.store.Get(ctx, b.config.Name)
	switch {
	case errors.Is(err, lease.ErrNotFound):
		return driver.Holder{}, false, nil
	case err != nil:
		return driver.Holder{}, false, fmt.Errorf("leader: looking for the holder of %s: %w", b.config.Name, err)
	case r.State != lease.Held:
		return driver.Holder{}, false, nil
	}
	holder = driver.Holder{Identity: r.Holder, Term: driver.TermOf(r.Token), Since: r.AcquiredAt}
	if r.ID != "" { // a lock server without tokens gives it only to the leader
		holder.Detail = "lease " + r.ID
	}
	return holder, true, nil
}

// wholeMilliseconds rounds up what some protocols would round down.
func wholeMilliseconds(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
