package shardstest

import (
	"context"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/leader/driver"
	shards "github.com/pglatch/pglatch/leader/shards/driver"
)

// A session is a session of a Backend. It is guarded by the Store's mu.
type session struct {
	backend *Backend
	self    shards.Member
	until   time.Time
	stolen  []string // stolen since the last renewal
	ended   bool
	closed  bool // by its own node
	told    bool
	lost    chan struct{}
	changed chan struct{}
	changes shards.Changes // since the last call of Changes
}

// tellLocked notifies the node that the session has ended.
func (o *session) tellLocked() {
	if !o.told && !o.closed {
		o.told = true
		close(o.lost)
	}
}

func (o *session) overLocked() error {
	if o.ended || o.closed {
		return fmt.Errorf("the session has ended: %w", driver.ErrLost)
	}
	return nil
}

// Lost implements driver.Session.
func (o *session) Lost() <-chan struct{} { return o.lost }

// Changed implements driver.Session.
func (o *session) Changed() <-chan struct{} { return o.changed }

// Changes implements driver.Session.
func (o *session) Changes() shards.Changes {
	o.backend.store.mu.Lock()
	defer o.backend.store.mu.Unlock()
	changes := o.changes
	o.changes = shards.Changes{}
	return changes
}

// Announce implements driver.Session.
func (o *session) Announce(ctx context.Context, self shards.Member) error {
	if err := o.backend.reachLocked(ctx, o); err != nil {
		return fmt.Errorf("shardstest: announce: %w", err)
	}
	defer o.backend.store.mu.Unlock()
	if o.self != self {
		o.self = self
		if self.Draining {
			o.backend.store.changedLocked(shards.Changes{Leaving: []string{self.Identity}})
		} else {
			o.backend.store.changedLocked(other)
		}
	}
	return nil
}

// Look implements driver.Session.
func (o *session) Look(ctx context.Context, known uint64) (shards.View, error) {
	if err := o.backend.reachLocked(ctx, o); err != nil {
		return shards.View{}, fmt.Errorf("shardstest: look: %w", err)
	}
	s := o.backend.store
	defer s.mu.Unlock()
	hidden := o.backend.hidden
	if known == s.version && len(hidden) == 0 {
		return shards.View{Version: known}, nil
	}
	v := s.viewLocked(hidden)
	if len(hidden) > 0 {
		v.Version = 0 // others see another view
	}
	return v, nil
}

// Claim implements driver.Session.
func (o *session) Claim(ctx context.Context, names []string) ([]shards.Grant, error) {
	if err := o.backend.reachLocked(ctx, o); err != nil {
		return nil, fmt.Errorf("shardstest: claim: %w", err)
	}
	s := o.backend.store
	defer s.mu.Unlock()
	var grants []shards.Grant
	for _, name := range names {
		if s.owners[name] == nil {
			s.owners[name] = o
			s.terms[name]++
			grants = append(grants, shards.Grant{Name: name, Term: shards.Term{N: s.terms[name]}})
		}
	}
	if len(grants) > 0 {
		s.version++ // no signal: nobody needs to look because of a claim
	}
	return grants, nil
}

// Release implements driver.Session.
func (o *session) Release(ctx context.Context, names []string) error {
	if err := o.backend.reachLocked(ctx, o); err != nil {
		o.abandon()
		return fmt.Errorf("shardstest: release: %w", err)
	}
	s := o.backend.store
	defer s.mu.Unlock()
	var freed []string
	for _, name := range names {
		if s.owners[name] == o {
			delete(s.owners, name)
			freed = append(freed, name)
		}
	}
	if len(freed) > 0 {
		s.changedLocked(shards.Changes{Released: freed})
	}
	return nil
}

// abandon ends a session from its node's side and notifies the node, because the session's shards are
// unknown.
func (o *session) abandon() {
	s := o.backend.store
	s.mu.Lock()
	o.tellLocked()
	s.mu.Unlock()
	_ = o.Close()
}

// Renew implements driver.Session.
func (o *session) Renew(ctx context.Context, ttl time.Duration) (lost []string, err error) {
	from := time.Now()
	if err := o.backend.reachLocked(ctx, o); err != nil {
		return nil, fmt.Errorf("shardstest: renew: %w", err)
	}
	defer o.backend.store.mu.Unlock()
	o.until = from.Add(ttl)
	lost, o.stolen = o.stolen, nil
	return lost, nil
}

// Leave implements driver.Session.
func (o *session) Leave(ctx context.Context) error {
	if err := o.backend.reachLocked(ctx, o); err != nil {
		return fmt.Errorf("shardstest: leave: %w", err)
	}
	defer o.backend.store.mu.Unlock()
	o.closed = true
	o.backend.store.endLocked(o)
	return nil
}

// Close implements driver.Session.
func (o *session) Close() error {
	s := o.backend.store
	s.mu.Lock()
	defer s.mu.Unlock()
	o.closed = true
	if !o.backend.cut { // otherwise the store does not learn of it
		s.endLocked(o)
	}
	return nil
}
