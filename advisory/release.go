package advisory

import (
	"context"
	"slices"

	"github.com/pglatch/pglatch/internal/session"
)

// release gives a lock back: to the next waiter of this process while the budget
// lasts, else to the server.
func (c *core) release(l *Lock) error {
	if l.Shared() {
		l.look()
	}
	c.mu.Lock()
	if n := c.outlasted(l); n != nil {
		if err := c.question(n); err != nil {
			n.end(err)
		}
	}
	switch {
	case l.released:
		c.mu.Unlock()
		return ErrReleased
	case l.cause != nil:
		l.released = true
		l.leaves(nil) // what it has on other connections, until its user is through
		c.mu.Unlock()
		return l.lose(l.cause)
	}
	l.end()
	l.released = true
	if len(l.on) == 1 && l.passes(l.on[0]) {
		l.on = nil
		c.mu.Unlock()
		return nil
	}
	r := newRequest(l, l.keys[0], NoTimeout)
	defer r.free()
	if l.leaves(r); r.left == 0 {
		c.mu.Unlock()
		return nil
	}
	c.await(context.Background(), r) // unlocks mu
	if r.err != nil {
		return l.lose(r.err)
	}
	return nil
}

// outlasted returns the connection of a reader that leaves it to others, under mu, if the
// server must be asked first whether it still keeps the lock.
func (c *core) outlasted(l *Lock) *conn {
	if !l.Shared() || !l.live() {
		return nil
	}
	now := c.now()
	for _, k := range l.on {
		if len(k.holders) > 1 && !c.verified(k.conn.session, now) {
			return k.conn
		}
	}
	return nil
}

// question asks the server whether the connection lives, under mu, which it gives up
// meanwhile.
func (c *core) question(n *conn) error {
	r := &request{lock: &Lock{core: c}, left: 1}
	n.push(&op{by: r, Op: session.Op{Ping: true}})
	c.await(context.Background(), r)
	c.mu.Lock()
	return r.err
}

// leaves takes the lock from its keys, under mu. r, if not nil, is settled when the
// server has those back that nobody else uses.
func (l *Lock) leaves(r *request) {
	keys := l.on
	l.on = nil
	for _, k := range keys {
		if !l.without(k) {
			continue
		}
		if r != nil {
			r.left++
		}
		k.giveBack(r)
	}
}

// passes takes the lock from its only key, under mu, if others use that too, or if it passes
// to the next who waits, without a round trip.
func (l *Lock) passes(k *key) bool {
	if len(k.holders) > 1 {
		l.without(k)
		return true
	}
	if k.waiting == 0 {
		return false
	}
	now := k.core.now()
	successor := k.successor(now)
	if successor == nil || !l.without(k) {
		return false
	}
	k.conn.watchNow()
	k.give(successor, true, now)
	return true
}

// without takes the lock from a key, under mu, and reports whether it was its last user.
func (l *Lock) without(k *key) bool {
	i := slices.Index(k.holders, l)
	if i < 0 {
		return false // it was lost
	}
	k.holders = slices.Delete(k.holders, i, i+1)
	return len(k.holders) == 0
}
