package advisory

import (
	"context"
	"slices"

	"github.com/pglatch/pglatch/namespace"
)

// reentrant refuses a key that the request's context already holds, under mu, and
// notes whether the caller holds anything.
func (c *core) reentrant(ctx context.Context, r *request) error {
	outer := c.carried(ctx)
	r.nested = outer != nil || len(r.partial) > 0
	slot := r.lock.slotOf
	for l := range outer.carriedAll {
		held, ok := l.holds(r.key.Tag())
		if slot.Valid() { // a semaphore and the mutex on its key are two things
			held, ok = l.keys[0], l.slotOf == slot
		}
		if ok {
			return &ReentrantError{Key: r.key, Held: held}
		}
	}
	return nil
}

// deadlock refuses a wait that would close a cycle, under mu: the holder of the
// wanted key waits for another one, and so on, up to a key that this caller
// holds. It sees the locks that contexts carry; cycles through other processes
// end in a timeout. Every cycle is closed by some request, so each is seen here.
func (c *core) deadlock(r *request) error {
	if !r.nested {
		return nil
	}
	mine := c.heldBy(r)
	type step struct {
		key  namespace.Key
		from int // index of the step before; -1 = the wanted key
	}
	steps := []step{{key: r.key, from: -1}}
	seen := map[namespace.Tag]bool{r.key.Tag(): true}
	for i := 0; i < len(steps); i++ {
		for waiter := range c.nested {
			tag := waiter.key.Tag()
			if seen[tag] || !hasTag(c.heldBy(waiter), steps[i].key.Tag()) {
				continue
			}
			seen[tag] = true
			steps = append(steps, step{key: waiter.key, from: i})
			if !hasTag(mine, tag) {
				continue
			}
			var cycle []namespace.Key
			for j := len(steps) - 1; j >= 0; j = steps[j].from {
				cycle = append(cycle, steps[j].key)
			}
			slices.Reverse(cycle)
			return &DeadlockError{Cycle: cycle}
		}
	}
	return nil
}

// heldBy returns the keys that a request's caller holds while it waits.
func (c *core) heldBy(r *request) []namespace.Key {
	keys := slices.Clone(r.partial)
	for l := range c.carried(r.lock.parent).carriedAll {
		keys = append(keys, l.keys...)
	}
	return keys
}

func hasTag(keys []namespace.Key, tag namespace.Tag) bool {
	return slices.ContainsFunc(keys, func(k namespace.Key) bool { return k.Tag() == tag })
}
