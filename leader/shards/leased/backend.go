package leased

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	leaderdriver "github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/leaseerr"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/lease"
)

// A Backend has the shards of one group in leases. It implements driver.Backend,
// driver.Operator and driver.Observer, and is safe for concurrent use.
type Backend struct {
	store  Store
	config Config
}

var _ interface {
	driver.Backend
	driver.Operator
	driver.Observer
} = (*Backend)(nil)

// New returns a Backend on a store, which stays the caller's, without asking it anything. It fails if a
// field of config is invalid.
func New(store Store, config Config) (*Backend, error) {
	if err := config.validated(store); err != nil {
		return nil, err
	}
	return &Backend{store, config}, nil
}

// Sessions is one. A session is no connection whose end would cost what it carries: leases are
// lost one by one, and a second heartbeat would go to the same store.
func (b *Backend) Sessions() int { return 1 }

// Open leases a member of this identity. After an error it may be one until ttl is over.
func (b *Backend) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	s := &session{
		Backend: b, id: rand.Text(), identity: self.Identity, announced: self, ttl: wholeMilliseconds(ttl),
		held: map[string]holding{}, given: map[string]lease.Claim{}, asked: map[string]string{},
		keep: lease.MaxTTL/4 + mathrand.N(lease.MaxTTL/2),
	}
	request := lease.AcquireRequest{
		Name: b.config.group(ofMember, s.id), Holder: s.identity, TTL: s.ttl, IdempotencyKey: s.id, Metadata: memberMetadata(self, 0),
	}
	var l lease.Lease
	err := again(ctx, func() (err error) {
		l, err = b.store.Acquire(ctx, request)
		return err
	})
	if err == nil {
		err = enough(l, s.ttl)
	}
	if err != nil {
		err = fmt.Errorf("shards: becoming a member of %s: %w", b.config.Name, err)
		if leaseerr.Permanent(err) {
			err = leaderdriver.Permanent(err)
		}
		return nil, err
	}
	s.member = l.Claim
	s.listen()
	b.tell(ctx)
	return s, nil
}

// enough returns an error if a lease ends before the session does.
func enough(l lease.Lease, ttl time.Duration) error {
	if l.Remaining < ttl {
		return leaderdriver.Permanent(fmt.Errorf("the store grants a lease of %v on %s: use a LeaseDuration of no more", l.Remaining, l.Name))
	}
	return nil
}

// again calls f until it returns something else than *lease.BusyError, after which nothing has
// changed, or ctx ends.
func again(ctx context.Context, f func() error) error {
	for {
		err := f()
		busy, ok := errors.AsType[*lease.BusyError](err)
		if !ok || pause.For(ctx, max(busy.Retry, shortestRetry)) != nil {
			return err
		}
	}
}

const shortestRetry = 5 * time.Millisecond

// wholeMilliseconds rounds up what some protocols would round down.
func wholeMilliseconds(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// list returns the records of leases that are held, by what their names have after prefix.
func (b *Backend) list(ctx context.Context, prefix string) (held map[string]lease.Record, err error) {
	held, err = b.records(ctx, prefix)
	maps.DeleteFunc(held, func(_ string, r lease.Record) bool { return r.State != lease.Held })
	return held, err
}

// records returns those that the store knows, also of leases that have ended.
func (b *Backend) records(ctx context.Context, prefix string) (all map[string]lease.Record, err error) {
	err = again(ctx, func() error {
		all = map[string]lease.Record{}
		for r, err := range b.store.List(ctx, lease.ListRequest{Prefix: prefix}) {
			if err != nil {
				return err
			}
			all[r.Name[len(prefix):]] = r
		}
		return nil
	})
	return all, err
}
