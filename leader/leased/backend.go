package leased

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/resend"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/lease"
)

// A Backend elects a leader with the lease of one name. It implements driver.Backend, driver.Waiter,
// driver.Termer and driver.Inspector. Only one goroutine at a time may call its methods, except Leader,
// which is safe for concurrent use.
type Backend struct {
	store  Store
	config Config

	identity string // of the last attempt; "" = none yet
	ttl      time.Duration

	lease   resend.Lease
	leads   bool     // it is that of the last successful TryAcquire
	stale   bool     // it, or the request for it, belongs to an earlier leadership and must be ended
	sending *sending // of the request for it; nil = none is under way

	term driver.Term // of the last successful TryAcquire
}

var _ interface {
	driver.Backend
	driver.Waiter
	driver.Termer
	driver.Inspector
	driver.Labeled
} = (*Backend)(nil)

// New returns a Backend on a store, and does not call the store. The caller still owns the store, and closes
// it. New fails if a field of config is invalid.
func New(store Store, config Config) (*Backend, error) {
	config, err := config.validated(store)
	if err != nil {
		return nil, err
	}
	return &Backend{store: store, config: config}, nil
}

// LogAttrs returns the lock's name.
func (b *Backend) LogAttrs() []slog.Attr { return []slog.Attr{slog.String("lock", b.config.Name)} }

// TryAcquire requests the lease once and ensures that it lasts for ttl. After an error, the lease may be
// held, or the request may still be under way. The next TryAcquire with the same identity adopts such a
// lease, and Release ends it. Otherwise it expires.
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
	b.leads, b.term = true, driver.TermOf(b.lease.Held().Token)
	return true, nil
}

// win acquires a lease that lasts for ttl.
func (b *Backend) win(ctx context.Context) error {
	if b.lease.Held() != nil { // Wait got it, some time ago
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

// Renew renews the lease of the last successful TryAcquire, and no other.
func (b *Backend) Renew(ctx context.Context, _ string, ttl time.Duration) error {
	if !b.leads {
		return fmt.Errorf("%w: no lease of %s is held", driver.ErrLost, b.config.Name)
	}
	b.ttl = ttl
	return b.prolong(ctx)
}

// prolong renews the held lease. An error that matches ErrLost means that nothing is held any more.
func (b *Backend) prolong(ctx context.Context) error {
	l, err := b.lease.Renew(ctx, b.store, wholeMilliseconds(b.ttl))
	switch {
	case lease.IsOver(err):
		b.leads = false
		return fmt.Errorf("%w: %w", driver.ErrLost, err)
	case err != nil:
		return fmt.Errorf("leader: renewing the lease of %s: %w", b.config.Name, err)
	case l.Remaining < b.ttl:
		return driver.Permanent(fmt.Errorf("leader: the store grants a lease of %v on %s: use a LeaseDuration of no more", l.Remaining, b.config.Name))
	}
	return nil
}

// Release ends the lease that is held. If it is unknown whether one is held, Release waits for the pending
// answer for half of ctx's time, and then asks the store once more.
func (b *Backend) Release(ctx context.Context, _ string) error { return b.settle(ctx) }

// Term returns a Term whose Uint64 is the fencing token of the last leadership's lease, or the zero
// Term.
func (b *Backend) Term() driver.Term { return b.term }

// Leader returns the holder of the lease. It can be a candidate that has just got the lease and does not know
// it yet.
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

// wholeMilliseconds rounds up, because some protocols would round down.
func wholeMilliseconds(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
