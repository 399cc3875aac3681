package advisory

import (
	"slices"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// reentrant refuses a key that the caller holds, under mu: the innermost lock that its
// context carries is outer. It notes what the caller holds.
func (c *core) reentrant(outer *Lock, r *request) error {
	slot := r.lock.slotOf
	for l := range outer.carriedAll {
		held, ok := l.holds(r.name.Tag())
		if slot.Valid() { // a semaphore and the mutex on its key are two things
			held, ok = l.keys[0], l.slotOf == slot
		}
		if ok {
			return &ReentrantError{Key: r.name, Held: held}
		}
		r.outer = append(r.outer, l)
	}
	if len(r.partial) > 0 {
		r.outer = append(r.outer, r.lock)
	}
	r.nested = len(r.outer) > 0
	return nil
}

// deadlock refuses a wait that would close a cycle, under mu: the holder of the
// wanted key waits for another one, and so on, up to a key that this caller
// holds. It sees the locks that contexts carry; cycles through other processes
// are for the breaker, or end in a timeout. A grant goes to the first in the queue, who does not wait then, so
// that every cycle is closed by some request that begins to wait, and is seen here.
func (c *core) deadlock(r *request) error {
	if !r.nested {
		return nil // nobody waits for it
	}
	type step struct {
		request *request
		from    int // index of the step before; -1 = the one that begins to wait
	}
	steps := []step{{r, -1}}
	seen := map[*request]bool{r: true}
	for i := 0; i < len(steps); i++ {
		for _, l := range steps[i].request.blockers() {
			if slices.Contains(r.outer, l) {
				var cycle []namespace.Key
				for j := i; j >= 0; j = steps[j].from {
					cycle = append(cycle, steps[j].request.name)
				}
				slices.Reverse(cycle)
				return &DeadlockError{Cycle: cycle}
			}
			for w := range l.inside {
				if !seen[w] {
					seen[w] = true
					steps = append(steps, step{w, i})
				}
			}
		}
	}
	return nil
}

// blockers returns the locks of this process that a request waits for, under mu:
// those that conflict with its mode or with the mode of one ahead of it in the queue,
// which no other may overtake. A request whose try is on its way has none, for the
// queue has a try only while nothing here conflicts with it. One that is not in the queue
// yet is taken for the last.
func (r *request) blockers() (locks []*Lock) {
	k := r.key
	exclusive := r.mode == session.Exclusive || k.mode == session.Exclusive
	for a := range k.requests.all {
		if exclusive || a == r {
			break
		}
		exclusive = a.mode == session.Exclusive
	}
	if k.phase == held && exclusive {
		return k.holders
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
