package etcd

import (
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// mostKnown is how many names a Store remembers at most.
const mostKnown = 8192

// A views holds names as this Store's own last transactions left them. Each is a guess, because
// others change names too, and etcd removes marks. A transaction that was decided on a guess
// compares it with the data. An answer without a transaction needs a read.
//
// A guess is not used over a new connection, because that may lead to a cluster with another
// history: see eras.
type views struct {
	mu     sync.Mutex
	made   int64  // how many connections had been made when these were stored
	term   uint64 // the greatest term of etcd's leaders since then
	recent map[string]*view
	older  map[string]*view // used less recently
}

// since reports whether something is as recent as the views. If it is more recent, they are
// forgotten.
func (k *views) since(made int64) bool {
	if made > k.made {
		k.made, k.term, k.recent, k.older = made, 0, nil, nil
	}
	return made == k.made
}

// get returns a view, nil if none is known, and the greatest term.
func (k *views) get(made int64, name string) (v *view, term uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.since(made) {
		return nil, 0
	}
	v, ok := k.recent[name]
	if !ok {
		if v = k.older[name]; v != nil {
			k.keep(name, v)
		}
	}
	return v, k.term
}

// put stores a view, unless a later one is known.
func (k *views) put(name string, v *view) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.since(v.made) {
		return
	}
	k.term = max(k.term, v.header.RaftTerm)
	known := k.recent[name]
	if known == nil {
		known = k.older[name]
	}
	if known == nil || known.revision < v.revision {
		k.keep(name, v)
	}
}

func (k *views) keep(name string, v *view) {
	if k.recent == nil || len(k.recent) == mostKnown/2 {
		k.recent, k.older = make(map[string]*view), k.recent
	}
	k.recent[name] = v
}

// drop forgets a view that others have outdated.
func (k *views) drop(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.recent, name)
	delete(k.older, name)
}

// saw records the term of an answer.
func (k *views) saw(made int64, h *etcdserverpb.ResponseHeader) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.since(made) {
		k.term = max(k.term, h.RaftTerm)
	}
}

// forget forgets all views.
func (k *views) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recent, k.older = nil, nil
}

// guess returns the last known view of a name, nil if there is none. Its header has the greatest
// revision and term that this process has seen, so that the checks after the transaction are as
// strict as after a read.
func (s *Store) guess(name string) *view {
	made := s.connections.Load()
	known, term := s.views.get(made, name)
	seen := s.eras.seen.Load()
	if known == nil || s.connections.Load() != made { // seen may be of another history
		return nil
	}
	v := *known
	v.guess = true
	v.header = &etcdserverpb.ResponseHeader{
		ClusterId: known.header.ClusterId, Revision: max(known.header.Revision, seen), RaftTerm: max(known.header.RaftTerm, term),
	}
	return &v
}
