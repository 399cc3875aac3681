package advisory

import (
	"slices"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// reentrant refuses a key that the caller holds, under mu: the innermost lock that its
// context carries is outer. It notes whether the caller holds anything.
func (c *core) reentrant(outer *Lock, r *request) error {
	r.nested = outer != nil || len(r.partial) > 0
	slot := r.lock.slotOf
	for l := range outer.carriedAll {
		held, ok := l.holds(r.name.Tag())
		if slot.Valid() { // a semaphore and the mutex on its key are two things
			held, ok = l.keys[0], l.slotOf == slot
		}
		if ok {
			return &ReentrantError{Key: r.name, Held: held}
		}
	}
	return nil
}

// deadlock refuses a wait that would close a cycle, under mu: the holder of the
// wanted key waits for another one, and so on, up to a key that this caller
// holds. It sees the locks that contexts carry; cycles through other processes
// end in a timeout. A grant goes to the first in line, who does not wait then, so
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
			if c.keeps(r, l) {
				var cycle []namespace.Key
				for j := i; j >= 0; j = steps[j].from {
					cycle = append(cycle, steps[j].request.name)
				}
				slices.Reverse(cycle)
				return &DeadlockError{Cycle: cycle}
			}
			for w := range c.nested {
				if !seen[w] && !w.settled && c.keeps(w, l) {
					seen[w] = true
					steps = append(steps, step{w, i})
				}
			}
		}
	}
	return nil
}

// blockers returns the locks of this process that a request waits for, under mu:
// those that conflict with its mode or with the mode of one ahead of it in line,
// which no other may overtake. A request whose try is on its way has none, for the
// line has a try only while nothing here conflicts with it. One that is not in line
// yet is taken for the last.
func (r *request) blockers() (locks []*Lock) {
	k := r.key
	exclusive := r.mode == session.Exclusive || k.mode == session.Exclusive
	for a := range k.requests.all {
		if a == r {
			break
		}
		exclusive = exclusive || a.mode == session.Exclusive
	}
	if k.phase == held && exclusive {
		return k.users
	}
	return nil
}

// keeps reports whether a lock stays held until the request is served, under mu: its
// caller holds it, or it is to be complete with this key.
func (c *core) keeps(r *request, l *Lock) bool {
	if len(r.partial) > 0 && r.lock == l {
		return true
	}
	for outer := range c.carried(r.lock.parent).carriedAll {
		if outer == l {
			return true
		}
	}
	return false
}

// heldBy returns the keys that a request's caller holds while it waits.
func (c *core) heldBy(r *request) []namespace.Key {
	keys := slices.Clone(r.partial)
	for l := range c.carried(r.lock.parent).carriedAll {
		keys = append(keys, l.keys...)
	}
	return keys
}
