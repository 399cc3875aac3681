package advisory

import (
	"context"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// release gives a lock back: to the next waiter of this process while the budget
// lasts, else to the server.
func (c *core) release(l *Lock) error {
	if l.Shared() {
		l.look()
	}
	c.mu.Lock()
	if n := c.outlasted(l, time.Now()); n != nil {
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
		c.mu.Unlock()
		return l.lose(l.cause)
	}
	l.end()
	l.released = true
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

// leaves takes the lock from its keys, under mu. r, if not nil, is settled when the
// server has those back that nobody else uses.
func (l *Lock) leaves(r *request) {
	keys := l.on
	l.on = nil
	for _, k := range keys {
		i := slices.Index(k.users, l)
		if i < 0 {
			continue // it was lost
		}
		k.users = slices.Delete(k.users, i, i+1)
		if len(k.users) > 0 {
			continue
		}
		if now := time.Now(); len(keys) == 1 && k.waiting > 0 {
			if heir := k.heir(now); heir != nil {
				k.conn.watchNow()
				k.give(heir, true, now)
				continue
			}
		}
		if r != nil {
			r.left++
		}
		k.giveBack(r)
	}
}

// outlasted returns the connection of a reader that leaves it to others, under mu, if the
// server must be asked first whether it still keeps the lock.
func (c *core) outlasted(l *Lock, now time.Time) *conn {
	if !l.Shared() || !l.live() {
		return nil
	}
	for _, k := range l.on {
		if len(k.users) > 1 && !c.verified(k.conn.session, now) {
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
