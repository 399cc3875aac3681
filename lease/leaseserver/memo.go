package leaseserver

import (
	"sync"

	"github.com/pglatch/pglatch/lease"
)

const memoSize = 4096

// A memo remembers the last releases that came with an idempotency key. If one is sent again, it
// gets the same answer, even if another holder has acquired the lock since. For older releases, and
// after a restart, the answer is that the claim is stale.
type memo struct {
	mu    sync.Mutex
	known map[release]struct{}
	ring  [memoSize]release
	next  int
}

type release struct {
	lease.Claim
	key string
}

func (m *memo) add(r release) {
	if r.key == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.known[r]; ok {
		return
	}
	if m.known == nil {
		m.known = make(map[release]struct{}, memoSize)
	}
	delete(m.known, m.ring[m.next])
	m.ring[m.next] = r
	m.known[r] = struct{}{}
	m.next = (m.next + 1) % memoSize
}

func (m *memo) has(r release) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.known[r]
	return ok
}
