package advisory

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

const (
	// parkedPause is how often a parked key is tried at first; in the end it is 8 times as long.
	parkedPause = 50 * time.Millisecond
	// settled is how long a lock has lived on a connection when somebody waits there for
	// another key, too: its unlock must interrupt that then.
	settled = 100 * time.Millisecond
	// slotPause is how often the one waiter of all processes that may looks for a
	// free slot; half of it is jitter.
	slotPause = 20 * time.Millisecond
)

// wait has somebody wait for the key, under mu: on the connection that it was asked on
// if there is nothing else on it, on one that has nothing else to do, or, parked, on
// none.
func (k *key) wait() {
	c := k.core
	k.phase = waiting
	if n := k.conn; c.dedicated() || n.locks == 1 && n != c.room.top() {
		k.waitOn(n)
		return
	}
	if n := c.connToWait(k); n != nil {
		k.waitOn(n)
		return
	}
	k.park()
}

// park lets the key be tried from time to time, under mu, until there is a connection
// to wait on.
func (k *key) park() {
	c := k.core
	k.phase = waiting
	k.move(nil)
	c.parked.push(&k.inLine, k)
	if !c.polling {
		c.polling = true
		c.wg.Go(c.poll)
	}
}

// poll tries the keys that are parked, all at the same moments so that they are one
// batch, until none is.
func (c *core) poll() {
	for round := 1; ; round++ {
		select {
		case <-c.ctx.Done():
		case <-time.After(parkedPause):
		}
		c.mu.Lock()
		c.serve()
		if c.parked.peek() == nil || c.closed {
			c.polling = false
			c.mu.Unlock()
			return
		}
		for _, k := range c.parked.slice() {
			r := k.requests.peek()
			every := 1 << min(k.polls, 3)
			if r == nil || !k.inLine.in || round%every != 0 {
				continue
			}
			k.polls++
			c.parked.remove(&k.inLine)
			k.phase = free
			if err := k.ask(r); err != nil { // no room for its lock now
				k.phase = waiting
				c.parked.push(&k.inLine, k)
			}
		}
		c.mu.Unlock()
	}
}

// connToWait returns a connection on which a key can be waited for, under mu, or nil: never
// the one that the next key goes to.
func (c *core) connToWait(k *key) (best *conn) {
	next := c.room.top()
	if n := c.unused(next); n != nil {
		return n
	}
	now := time.Now()
	for n := range c.conns {
		if n.session != nil && n.ended == nil && !n.busy && n != next && n != k.conn && now.Sub(n.since) >= settled && (best == nil || n.locks < best.locks) {
			best = n
		}
	}
	return best
}

// yield has one who waits leave its connection to a key that has none, under mu, if there
// is such a connection.
func (c *core) yield() bool {
	if c.dedicated() {
		return false
	}
	for n := range c.conns {
		if n.ended != nil || n.waiter == nil || n.locks > c.config.LocksPerConn {
			continue
		}
		if !n.yields {
			n.yields = true
			n.waiter.stir()
		}
		return true
	}
	return false
}

// waitOn begins to wait for the key on a connection, under mu.
func (k *key) waitOn(n *conn) {
	k.phase = waiting
	k.move(n)
	if n.waiter == nil && n.session != nil && !n.busy {
		n.busy = true
	}
	n.waiter, n.yields = k, false
	n.place()
	if k.stirs == nil {
		k.stirs = make(chan struct{}, 1)
	}
	k.core.wg.Go(func() { k.campaign(n) })
}

// stir has who waits for the key look again, under mu.
func (k *key) stir() {
	if n := k.conn; n != nil && n.session != nil && n.waiter == k {
		n.session.Interrupt()
	}
	k.nudge()
}

// nudge ends a rest of who waits for the key, under mu.
func (k *key) nudge() {
	select {
	case k.stirs <- struct{}{}:
	default:
	}
}

// campaign waits for the key, on a connection of which nobody else makes use meanwhile,
// until it is granted, nobody wants it any more, or the connection is lost.
func (k *key) campaign(n *conn) {
	c := k.core
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(n.pending) > 0 && n.ended == nil && n.session != nil {
			n.drive()
		}
		r := k.requests.peek()
		switch {
		case n.ended != nil:
			n.waiter = nil
			k.lost(n.ended)
			n.next()
			return
		case r == nil || c.closed || r.try:
			k.stop(n)
			return
		case n.session == nil:
			k.rest(parkedPause)
			continue
		case n.yields && k.outOfTurn(n):
			return
		case k.turn && k.mode != r.mode:
			k.leaveTurnstile(n)
			continue
		}
		k.mode = r.mode
		came := !k.turn
		granted, err := k.slice(n, r)
		switch {
		case errors.Is(err, session.ErrLost):
			n.end(err)
		case err != nil:
			if r := k.requests.peek(); r != nil { // the one of before may have left
				k.refuse(r, err)
			}
		case granted:
			n.waiter = nil
			n.next()
			return
		case came && k.turn: // it has just got the turnstile, and waits for the key next
		case k.outOfTurn(n):
			return
		}
	}
}

// slice waits once: for the turnstile, and then for the key, or for a free slot of a
// semaphore. It is called under mu, which it gives up meanwhile.
func (k *key) slice(n *conn, r *request) (granted bool, err error) {
	c := k.core
	limit := NoTimeout
	if !r.deadline.IsZero() {
		limit = time.Until(r.deadline)
	}
	if k.turn && k.pool {
		return k.look(n, r)
	}
	o := session.Op{Tag: k.tag, Mode: k.mode, Wait: max(limit, time.Millisecond)}
	if !k.turn {
		o.Tag = k.turnstile()
	}
	c.stats.slices.Add(1)
	switch err := n.alone(&o); {
	case err != nil || !o.Held:
		return false, cmp.Or(err, o.Err)
	case !k.turn:
		k.turn = true
		return false, nil
	}
	k.leaveTurnstile(n)
	k.grant()
	return true, nil
}

// alone has one operation done to its end, for who waits on the connection, under mu,
// which it gives up meanwhile.
func (n *conn) alone(o *session.Op) error {
	n.core.mu.Unlock()
	err := n.session.Do([]*session.Op{o}, patience)
	if errors.Is(err, session.ErrPending) {
		err = n.session.Do(nil, 0)
	}
	n.core.mu.Lock()
	n.rounds++
	n.watched = false
	if n.ended != nil { // meanwhile, by another goroutine
		return n.ended
	}
	return err
}

// look takes a free slot, if there is one, or rests a moment, under mu.
func (k *key) look(n *conn, r *request) (granted bool, err error) {
	c := k.core
	o := session.Op{Any: c.freeSlots(r)}
	if len(o.Any) == 0 {
		o = session.Op{Ping: true} // the server is told that the session lives
	}
	switch err := n.alone(&o); {
	case err != nil:
		return false, err
	case o.Err != nil:
		return false, o.Err
	case o.Held:
		k.leaveTurnstile(n)
		k.grantSlot(o.Any[o.Index])
		return true, nil
	}
	k.rest(slotPause/2 + rand.N(slotPause/2))
	return false, nil
}

// rest waits a moment, or until somebody stirs, under mu, which it gives up meanwhile.
func (k *key) rest(pause time.Duration) {
	c := k.core
	c.mu.Unlock()
	defer c.mu.Lock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-k.stirs:
	case <-c.ctx.Done():
	}
}

// stop ends the wait for a key that nobody waits for any more, under mu.
func (k *key) stop(n *conn) {
	n.waiter = nil
	if k.turn { // a try on another connection may not find it shut
		k.turn, k.phase = false, leaving
		k.op = op{key: k, Op: session.Op{Tag: k.turnstile(), Mode: k.mode, Unlock: true}}
		n.add(&k.op)
		n.next()
		return
	}
	if n.session == nil && len(n.pending) == 0 {
		n.cancel()
	}
	k.phase = free
	k.move(nil)
	n.next()
	k.advance()
}

// leaveTurnstile gives the turnstile back, under mu.
func (k *key) leaveTurnstile(n *conn) {
	k.turn = false
	n.add(&op{Op: session.Op{Tag: k.turnstile(), Mode: k.mode, Unlock: true}})
}

// outOfTurn leaves the connection to a key that has none, if there is one, under mu:
// they take turns, slice by slice.
func (k *key) outOfTurn(n *conn) bool {
	c := k.core
	if c.dedicated() || c.parked.peek() == nil && (c.starved.peek() == nil || n.locks > c.config.LocksPerConn) {
		return false
	}
	n.waiter = nil
	if k.turn {
		k.leaveTurnstile(n)
	}
	k.park()
	n.next()
	c.serve()
	return true
}
