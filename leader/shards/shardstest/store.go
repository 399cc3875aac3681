package shardstest

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	shards "github.com/pglatch/pglatch/leader/shards/driver"
)

// A Store keeps the shards of one group in memory. Its methods are safe for concurrent use.
type Store struct {
	mu       sync.Mutex
	sessions []*session // sessions that have not ended
	owners   map[string]*session
	terms    map[string]uint64 // last term of each shard
	pins     map[string]string
	drained  map[string]bool
	version  uint64
}

// NewStore returns a Store in which no shard has an owner.
func NewStore() *Store {
	return &Store{owners: map[string]*session{}, terms: map[string]uint64{}, pins: map[string]string{}, drained: map[string]bool{}, version: 1}
}

// Backend returns a new node's access to the store, with two sessions.
func (s *Store) Backend() *Backend {
	return &Backend{store: s, hidden: map[string]bool{}, heal: make(chan struct{})}
}

// Owners returns the identity of each shard's actual owner.
func (s *Store) Owners() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	owners := make(map[string]string, len(s.owners))
	for name, session := range s.owners {
		owners[name] = session.self.Identity
	}
	return owners
}

// Steal ends the ownership of a shard. Its owner learns of it at its next renewal.
func (s *Store) Steal(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner := s.owners[name]; owner != nil {
		delete(s.owners, name)
		owner.stolen = append(owner.stolen, name)
		s.changedLocked(other)
	}
}

// expireLocked ends the sessions that were not renewed in time.
func (s *Store) expireLocked() {
	now := time.Now()
	for _, session := range slices.Clone(s.sessions) {
		if !now.Before(session.until) {
			s.endLocked(session)
		}
	}
}

// endLocked ends a session and frees its shards. Its node is notified, unless it is cut off.
func (s *Store) endLocked(o *session) {
	if o.ended {
		return
	}
	o.ended = true
	s.sessions = slices.DeleteFunc(s.sessions, func(each *session) bool { return each == o })
	maps.DeleteFunc(s.owners, func(_ string, owner *session) bool { return owner == o })
	if !o.backend.cut {
		o.tellLocked()
	}
	s.changedLocked(other)
}

// other is a change that is neither a release nor a leave.
var other = shards.Changes{Other: true}

// changedLocked begins a new version, and signals to all nodes that are not cut off.
func (s *Store) changedLocked(changes shards.Changes) {
	s.version++
	for _, o := range s.sessions {
		if o.backend.cut {
			continue
		}
		o.changes = o.changes.And(changes)
		select {
		case o.changed <- struct{}{}:
		default: // an earlier signal is still pending
		}
	}
}

// viewLocked returns the view, without hidden members.
func (s *Store) viewLocked(hidden map[string]bool) shards.View {
	v := shards.View{Version: s.version, Owners: map[string]string{}, Pins: maps.Clone(s.pins)}
	seen := map[string]int{}
	for _, o := range s.sessions {
		m := o.self
		m.Draining = m.Draining || s.drained[m.Identity]
		if at, ok := seen[m.Identity]; ok {
			v.Members[at] = m // the last announcement counts
		} else if !hidden[m.Identity] {
			seen[m.Identity] = len(v.Members)
			v.Members = append(v.Members, m)
		}
	}
	slices.SortFunc(v.Members, func(a, b shards.Member) int { return cmp.Compare(a.Identity, b.Identity) })
	for name, o := range s.owners {
		v.Owners[name] = o.self.Identity
	}
	return v
}
