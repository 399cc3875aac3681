package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/gather"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// A Store keeps leases in an etcd cluster. It implements [lease.Store], [lease.BatchRenewer],
// [lease.HandOverer], [lease.KeyedReleaser], [lease.Messenger] and [lease.HealthReporter], the wait
// that leader/leased uses, and the preparation of hand-overs that lease/leaseserver uses. All methods are safe for concurrent use.
type Store struct {
	config      Config
	client      *clientv3.Client
	connections atomic.Int64 // that were made

	eras    eras
	views   views
	spare   spares
	wants   gather.Group[*want]
	sending gather.Group[*transaction]
	most    bound
	round   round

	closing context.Context // ended by Close
	close   context.CancelFunc
	retired chan clientv3.LeaseID
	wanted  chan class
	keeper  sync.WaitGroup
	closed  sync.Once
	ended   error // of the client's Close
}

var _ interface {
	lease.Store
	lease.BatchRenewer
	lease.HandOverer
	lease.KeyedReleaser
	lease.Messenger
	lease.HealthReporter
} = (*Store)(nil)

// Open connects to a cluster, and checks that it answers and allows the store's operations. It
// fails in the same ways as operations do. The caller must Close the store.
func Open(ctx context.Context, config Config) (*Store, error) {
	s := &Store{
		eras: eras{finding: make(chan struct{}, 1)}, spare: spares{free: make(map[int64][]mark)},
		retired: make(chan clientv3.LeaseID, mostRetired), wanted: make(chan class, mostAhead),
	}
	s.wants = gather.Group[*want]{Flights: flights, Most: mostWants, Patience: patience, MostPatience: mostPatience, Fly: s.supply}
	s.sending = gather.Group[*transaction]{Flights: flights, Most: mostSending, Patience: patience, MostPatience: mostPatience, Fly: s.fly}
	config, err := config.withDefaults(s)
	if err != nil {
		return nil, err
	}
	s.config = config
	client, err := connect(ctx, config.Client)
	if err != nil {
		return nil, undone(ctx, err)
	}
	s.client = client
	s.closing, s.close = context.WithCancel(context.Background())
	s.keeper.Go(s.keep)
	if err := s.Health(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// connect makes a client. With a user, it requests a token from the cluster at once.
func connect(ctx context.Context, config clientv3.Config) (*clientv3.Client, error) {
	type made struct {
		client *clientv3.Client
		err    error
	}
	answer := make(chan made, 1)
	go func() {
		c, err := clientv3.New(config) // bounded by DialTimeout
		answer <- made{c, err}
	}()
	select {
	case m := <-answer:
		return m.client, m.err
	case <-ctx.Done():
		go func() {
			if m := <-answer; m.client != nil {
				_ = m.client.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// Close ends the store's connections. Leases continue. Operations in progress fail. Later ones
// fail with an error that matches lease.ErrClosed. Closing the store again is not an error.
func (s *Store) Close() error {
	s.closed.Do(func() {
		s.close()
		s.keeper.Wait()
		s.ended = s.client.Close()
		s.wants.Close()
		s.sending.Close()
	})
	return s.ended
}

// Acquire implements [lease.Store].
func (s *Store) Acquire(ctx context.Context, r lease.AcquireRequest) (l lease.Lease, err error) {
	if err := r.Validate(); err != nil {
		return l, err
	}
	err = s.decide(ctx, r.Name, func(ctx context.Context, v *view) (done bool, err error) {
		l, done, err = s.acquire(ctx, &change{v: v}, v, r)
		return done, err
	})
	return l, err
}

// acquire decides a request by the state of the name after c, and commits both.
func (s *Store) acquire(ctx context.Context, c *change, after *view, r lease.AcquireRequest) (l lease.Lease, done bool, err error) {
	next, l, err := rules.Acquire(after.row, 0, after.now(s.config.Wall()), r, rules.NewID())
	unconfirmed := c.v.guess && (err != nil || next.Version == after.row.Version) // only a read can confirm it
	if unconfirmed {
		return lease.Lease{}, false, nil
	}
	if err != nil {
		return lease.Lease{}, false, s.refusal(ctx, after, err)
	}
	if next.Version == after.row.Version { // the same request got it before
		if after.outlived() {
			l.Remaining, done, err = s.replace(ctx, after)
			return l, done, err
		}
		l.Remaining, err = s.remaining(ctx, after)
		return l, err == nil, err
	}
	c.row, c.acquires, c.marks = next, true, [kinds]mark{}
	if err := s.mark(ctx, c, r.TTL); err != nil {
		s.retire(c.fresh...)
		return lease.Lease{}, false, err
	}
	asked := c.remaining()
	c.row.ExpiresAt = c.row.AcquiredAt.Add(asked)
	token, err := s.commit(ctx, c)
	if err != nil || token == 0 {
		return lease.Lease{}, false, err
	}
	c.row.Token = token
	l = c.row.Lease(c.row.AcquiredAt)
	l.Metadata = maps.Clone(r.Metadata)
	return l, true, nil
}

// replace attaches a current lease to other etcd leases, for as long as its last renewal said.
// Others see no change; false if something came between.
func (s *Store) replace(ctx context.Context, v *view) (left time.Duration, done bool, err error) {
	c := &change{v: v, row: v.row, needs: true, marks: v.marks}
	left, _, err = s.prolongTo(ctx, c, v.marks[held].asked, new(bool))
	if err != nil {
		return 0, false, err
	}
	token, err := s.commit(ctx, c)
	if err == nil && token == 0 && c.done {
		err = doubtful(ctx, errReplaced) // the lease may now last longer
	}
	return left, err == nil && token != 0, err
}

// mark gets the marks of an acquired lease.
func (s *Store) mark(ctx context.Context, c *change, ttl time.Duration) error {
	for _, m := range []struct {
		kind kind
		d    time.Duration
	}{{kept, c.row.MinHold}, {alive, c.row.MaxLifetime}} {
		if m.d > 0 {
			if err := c.add(ctx, s, m.kind, seconds(m.d)); err != nil {
				return err
			}
		}
	}
	return s.extend(ctx, c, seconds(ttl))
}

// extend gets the marks of a lease that lasts so many seconds from now.
func (s *Store) extend(ctx context.Context, c *change, asked int64) error {
	if err := c.add(ctx, s, held, asked); err != nil {
		return err
	}
	if c.row.LockDelay == 0 {
		return nil
	}
	return c.add(ctx, s, delayed, c.marks[held].granted+seconds(c.row.LockDelay))
}

// remaining returns how long a lease lasts whose marks were granted or renewed for this change.
func (c *change) remaining() time.Duration {
	left := c.marks[held].granted
	if c.marks[alive].set() {
		left = min(left, c.marks[alive].granted)
	}
	return time.Duration(left) * time.Second
}

// Renew implements [lease.Store]. It extends the lease to the TTL in whole seconds.
func (s *Store) Renew(ctx context.Context, r lease.RenewRequest) (l lease.Lease, err error) {
	if err := r.Validate(); err != nil {
		return l, err
	}
	asked := seconds(r.TTL)
	r.TTL = time.Duration(asked) * time.Second
	prolonged, done := false, false
	err = s.decide(ctx, r.Name, func(ctx context.Context, v *view) (bool, error) {
		now := v.now(s.config.Wall())
		next, _, err := rules.Renew(v.row, now, r)
		if err != nil {
			return false, err
		}
		if done { // only the count by the leader is missing: one call renews once
			next = v.row
		}
		c := &change{v: v, row: next, needs: true, marks: v.marks}
		left, on, err := s.prolongTo(ctx, c, asked, &prolonged)
		if err != nil || !on {
			return false, err
		}
		if until := now.Add(left); !done && until.After(next.ExpiresAt) && next.MaxLifetime == 0 {
			c.row.ExpiresAt = until
		}
		token, err := s.commit(ctx, c)
		done = done || c.done
		if err != nil || token == 0 {
			return false, err
		}
		l = c.row.Lease(now)
		l.Remaining = left
		return true, nil
	})
	if (prolonged || done) && (errors.Is(err, lease.ErrBusy) || errors.Is(err, lease.ErrNotReady)) {
		return lease.Lease{}, fmt.Errorf("lease/etcd: whether it was done is unknown: %v", err) //nolint:errorlint // these say that nothing was done
	}
	return l, err
}

// prolongTo makes the lease of a change last for at least so many seconds, and returns how long it
// lasts; false if it has expired. It sets prolonged if the lease may now last longer.
func (s *Store) prolongTo(ctx context.Context, c *change, asked int64, prolonged *bool) (left time.Duration, on bool, err error) {
	m, outlived := c.v.marks[held], c.v.outlived()
	if c.v.guess && asked != m.asked { // it may need new etcd leases, of the present term
		return 0, false, nil
	}
	if asked < m.asked {
		if left, err = s.left(ctx, m); err != nil {
			return 0, false, err
		}
	}
	switch {
	case outlived:
		asked = max(asked, seconds(left))
		if err := s.extend(ctx, c, asked); err != nil {
			s.retire(c.fresh...)
			return 0, false, err
		}
		left = time.Duration(c.marks[held].granted) * time.Second
	case asked == m.asked:
		for _, k := range []kind{delayed, held} {
			if on, err := c.renew(ctx, s, k, prolonged); err != nil || !on {
				s.retire(c.fresh...)
				return 0, false, err
			}
		}
		left = time.Duration(c.marks[held].granted) * time.Second
	case left < time.Duration(asked)*time.Second:
		if err := s.extend(ctx, c, asked); err != nil {
			s.retire(c.fresh...)
			return 0, false, err
		}
		left = time.Duration(c.marks[held].granted) * time.Second
	}
	if c.v.marks[alive].set() {
		life, err := s.left(ctx, c.v.marks[alive])
		if err == nil && outlived {
			err = c.add(ctx, s, alive, seconds(life)+1) // etcd rounded it down
		}
		if err != nil {
			s.retire(c.fresh...)
			return 0, false, err
		}
		left = max(min(left, life), shortest)
	}
	return left, true, nil
}

// Release implements [lease.Store].
func (s *Store) Release(ctx context.Context, claim lease.Claim) error {
	return s.ReleaseKeyed(ctx, lease.ReleaseRequest{Claim: claim})
}

// ReleaseKeyed implements [lease.KeyedReleaser].
func (s *Store) ReleaseKeyed(ctx context.Context, r lease.ReleaseRequest) error {
	if err := r.Validate(); err != nil {
		return err
	}
	return s.decide(ctx, r.Name, func(ctx context.Context, v *view) (bool, error) {
		c, err := s.release(v, r)
		if err != nil || !c.needs {
			return err == nil, err
		}
		token, err := s.commit(ctx, c)
		return token != 0, err
	})
}

// release decides a request. The needs of the change is false if the lease was released before.
func (s *Store) release(v *view, r lease.ReleaseRequest) (*change, error) {
	next, err := rules.Release(v.row, v.now(s.config.Wall()), r)
	c := &change{v: v, row: next, needs: err == nil && next.Version != v.row.Version}
	if !c.needs {
		c.marks = v.marks
	}
	c.keep(kept)
	return c, err
}

// HandOver implements [lease.HandOverer].
func (s *Store) HandOver(ctx context.Context, r lease.ReleaseRequest, next lease.AcquireRequest) (l lease.Lease, released, acquired error) {
	return s.handOver(ctx, r, next, nil)
}

// handOver is HandOver, with an etcd lease that is ready; nil = none is.
func (s *Store) handOver(ctx context.Context, r lease.ReleaseRequest, next lease.AcquireRequest, ready *readied) (l lease.Lease, released, acquired error) {
	if released, acquired = r.Validate(), next.Validate(); released != nil || acquired != nil || r.Name != next.Name {
		if released == nil {
			released = s.ReleaseKeyed(ctx, r)
		}
		if acquired == nil {
			l, acquired = s.Acquire(ctx, next)
		}
		return l, released, acquired
	}
	var refused, unheld error
	err := s.decide(ctx, r.Name, func(ctx context.Context, v *view) (done bool, err error) {
		l, refused, unheld = lease.Lease{}, nil, nil
		c, err := s.release(v, r)
		refused = err
		ends := c.needs
		c.ready = ready
		after := *v
		after.row, after.marks = c.row, c.marks
		l, done, err = s.acquire(ctx, c, &after, next)
		if !isRefusal(err) {
			return done, err
		}
		unheld = err
		if !ends {
			return true, nil
		}
		token, err := s.commit(ctx, c)
		return token != 0, err
	})
	if err != nil {
		return lease.Lease{}, err, err
	}
	return l, refused, unheld
}

// Get implements [lease.Store].
func (s *Store) Get(ctx context.Context, name string) (r lease.Record, err error) {
	if err := lease.ValidateName(name); err != nil {
		return r, err
	}
	err = s.again(ctx, func(ctx context.Context) (bool, error) {
		v, err := s.look(ctx, name)
		if err == nil && v.row.Token == 0 {
			err = &lease.NotFoundError{Name: name}
		}
		if err == nil {
			r, err = s.record(ctx, v)
		}
		return err == nil, err
	})
	return r, err
}
