package advisory

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// freeSlots are those that this process does not hold, from a random one on, so that
// callers spread.
func (c *core) freeSlots(r *request) []namespace.Tag {
	from := rand.IntN(len(r.slots))
	tags := make([]namespace.Tag, 0, len(r.slots))
	for _, slot := range slices.Concat(r.slots[from:], r.slots[:from]) {
		if c.keys[slot.Tag()] == nil {
			tags = append(tags, slot.Tag())
		}
	}
	return tags
}

// grantSlot is grant for a semaphore: the slot is a key of its own from now on.
func (k *key) grantSlot(tag namespace.Tag) {
	c, n, now := k.core, k.conn, time.Now()
	slot := c.key(tag, false)
	if slot.phase != free {
		panic("BUG: a slot was granted that this process has")
	}
	slot.mode, slot.phase, slot.at, slot.semaphore = session.Exclusive, held, now, k.tag
	slot.move(n)
	n.since = now
	k.phase, k.losses, k.loss, k.polls = free, 0, nil, 0
	k.move(nil)
	r := k.requests.peek()
	i := -1
	if r != nil && !c.closed {
		i = slices.IndexFunc(r.slots, func(s namespace.Key) bool { return s.Tag() == tag })
	}
	if i < 0 {
		slot.giveBack(nil)
	} else {
		r.lock.keys = r.slots[i : i+1 : i+1]
		slot.slots = uint16(len(r.slots))
		k.requests.remove(&r.inQueue)
		k.waiting--
		slot.waiting++
		slot.requests.push(&r.inQueue, r)
		slot.give(r, false, now)
	}
	k.advance()
}
