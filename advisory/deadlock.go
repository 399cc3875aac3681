package advisory

import (
	"slices"

	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/namespace"
)

// has returns the lock's key that a request is for. A semaphore and the mutex on its key are
// different locks.
func (l *Lock) has(r *request) (namespace.Key, bool) {
	if slot := r.lock.hold.SlotOf; slot.Valid() {
		return l.keys[0], l.hold.SlotOf == slot
	}
	return l.holds(r.name.Tag())
}

// blockers returns the locks of this process that a request waits for, under mu.
func (r *request) blockers() []*Lock { return locksOf(r.Blockers()) }

func locksOf(holders []*locktable.Holder) (locks []*Lock) {
	for _, h := range holders {
		locks = append(locks, lockOf(h))
	}
	return locks
}

// heldBy returns the keys that a request's caller holds while it waits.
func (c *core) heldBy(r *request) []namespace.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := slices.Clone(r.partial)
	for l := range c.carried(r) {
		keys = append(keys, l.keys...)
	}
	return keys
}
