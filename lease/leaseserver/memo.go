package leaseserver

import (
	"sync"

	"github.com/pglatch/pglatch/lease"
)

const memoSize = 4096

// A memo remembers the last releases that came with an idempotency key. If one is sent again, it
// gets the same answer, even if another holder has acquired the lock since. The store knows the last
// such release of each lock, also after a restart and at another server; see lease.KeyedReleaser. The
// memo knows earlier ones, and those of locks that a sweep has forgotten.
type memo struct {
	mu    sync.Mutex
	known map[lease.ReleaseRequest]struct{}
	ring  [memoSize]lease.ReleaseRequest
	next  int
}

func (m *memo) add(r lease.ReleaseRequest) {
	if r.IdempotencyKey == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.known[r]; ok {
		return
	}
	if m.known == nil {
		m.known = make(map[lease.ReleaseRequest]struct{}, memoSize)
	}
	delete(m.known, m.ring[m.next])
	m.ring[m.next] = r
	m.known[r] = struct{}{}
	m.next = (m.next + 1) % memoSize
}

func (m *memo) has(r lease.ReleaseRequest) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.known[r]
	return ok
}
