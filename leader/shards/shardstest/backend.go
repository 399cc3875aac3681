package shardstest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	shards "github.com/pglatch/pglatch/leader/shards/driver"

	"github.com/pglatch/pglatch/internal/pause"
)

// A Backend is one node's access to a Store.
type Backend struct {
	store *Store

	// The fields below are guarded by the Store's mu.
	opened  []*session
	failure error
	delay   time.Duration
	hidden  map[string]bool
	cut     bool
	heal    chan struct{} // closed when the cut ends
	calls   int
}

var _ interface {
	shards.Backend
	shards.Operator
	shards.Observer
} = (*Backend)(nil)

// Sessions implements driver.Backend.
func (b *Backend) Sessions() int { return 2 }

// Open implements driver.Backend.
func (b *Backend) Open(ctx context.Context, self shards.Member, ttl time.Duration) (shards.Session, error) {
	if err := b.reachLocked(ctx, nil); err != nil {
		return nil, fmt.Errorf("shardstest: open: %w", err)
	}
	defer b.store.mu.Unlock()
	o := &session{backend: b, self: self, until: time.Now().Add(ttl), lost: make(chan struct{}), changed: make(chan struct{}, 1)}
	b.opened = append(b.opened, o)
	b.store.sessions = append(b.store.sessions, o)
	b.store.changedLocked(other)
	return o, nil
}

// Pin implements driver.Operator.
func (b *Backend) Pin(ctx context.Context, shard, identity string) error {
	if err := b.reachLocked(ctx, nil); err != nil {
		return fmt.Errorf("shardstest: pin: %w", err)
	}
	defer b.store.mu.Unlock()
	if b.store.pins[shard] = identity; identity == "" {
		delete(b.store.pins, shard)
	}
	b.store.changedLocked(other)
	return nil
}

// Drain implements driver.Operator.
func (b *Backend) Drain(ctx context.Context, identity string, drain bool) error {
	if err := b.reachLocked(ctx, nil); err != nil {
		return fmt.Errorf("shardstest: drain: %w", err)
	}
	defer b.store.mu.Unlock()
	if b.store.drained[identity] = drain; !drain {
		delete(b.store.drained, identity)
	}
	b.store.changedLocked(other)
	return nil
}

// Observe implements driver.Observer.
func (b *Backend) Observe(ctx context.Context) (shards.Observation, error) {
	if err := b.reachLocked(ctx, nil); err != nil {
		return shards.Observation{}, fmt.Errorf("shardstest: observe: %w", err)
	}
	s := b.store
	defer s.mu.Unlock()
	o := shards.Observation{View: s.viewLocked(b.hidden), Terms: map[string]shards.Term{}, Drained: slices.Sorted(maps.Keys(s.drained))}
	o.Version = 0
	for name, n := range s.terms {
		o.Terms[name] = shards.Term{N: n}
	}
	return o, nil
}

// Kill ends the i-th live session of the node from outside; 0 is the oldest. The session's shards are
// free at once, and the node is notified. Kill reports whether there was such a session.
func (b *Backend) Kill(i int) bool {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	for _, o := range b.opened {
		if o.ended {
			continue
		}
		if i == 0 {
			b.store.endLocked(o)
			return true
		}
		i--
	}
	return false
}

// Cut silently cuts the node's network: its calls hang until their ctx ends, it receives no signals, and its
// ownerships end after their ttl.
func (b *Backend) Cut() {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	b.cut = true
}

// Heal ends a Cut: calls that hang continue.
func (b *Backend) Heal() {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if !b.cut {
		return
	}
	b.cut = false
	close(b.heal)
	b.heal = make(chan struct{})
	b.store.expireLocked()
	for _, o := range b.opened {
		if o.ended {
			o.tellLocked()
		}
	}
}

// SetUnavailable makes all calls of this node fail with err, until it is called with nil.
func (b *Backend) SetUnavailable(err error) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	b.failure = err
}

// SetDelay delays each call of this node by d before it reaches the store.
func (b *Backend) SetDelay(d time.Duration) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	b.delay = d
}

// Hide removes these members from all later views of this node.
func (b *Backend) Hide(identities ...string) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	b.hidden = map[string]bool{}
	for _, identity := range identities {
		b.hidden[identity] = true
	}
}

// Calls returns how many calls of this node reached the store.
func (b *Backend) Calls() int {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	return b.calls
}

// reachLocked connects to the store, for a session of this node if o is not nil. It returns with mu locked,
// or an error.
func (b *Backend) reachLocked(ctx context.Context, o *session) error {
	s := b.store
	s.mu.Lock()
	for b.cut || b.delay > 0 {
		cut, heal, delay := b.cut, b.heal, b.delay
		s.mu.Unlock()
		if cut {
			select {
			case <-heal:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		} else if err := pause.For(ctx, delay); err != nil {
			return err
		}
		s.mu.Lock()
		if !cut && !b.cut {
			break
		}
	}
	s.expireLocked()
	err := b.failure
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil && o != nil:
		err = o.overLocked()
	}
	if err != nil {
		s.mu.Unlock()
		return err
	}
	b.calls++
	return nil
}
