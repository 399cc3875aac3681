package advisory

import "time"

const (
	// pollPause is how often a polled key is tried at first; in the end it is 8 times as long.
	pollPause = 50 * time.Millisecond
	// settled is how long a lock has lived on a connection when somebody waits there for
	// another key, too: its unlock must interrupt that then.
	settled = 100 * time.Millisecond
)

// connToWait returns a connection on which a key can be waited for, under mu, or nil: never
// the one that the next key goes to.
func (c *core) connToWait(k *key) (best *conn) {
	next := c.room.top()
	if n := c.unused(next); n != nil {
		return n
	}
	now := time.Now()
	for n := range c.conns {
		if n.session != nil && n.ended == nil && !n.busy && n.waiter == nil && n != next && n != k.conn && now.Sub(n.since) >= settled && (best == nil || n.locks < best.locks) {
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
			n.waiter.interrupt()
		}
		return true
	}
	return false
}

// outOfTurn leaves the connection to a key that has none, if there is one, under mu:
// they take turns, step by step.
func (k *key) outOfTurn(n *conn) bool {
	c := k.core
	if c.dedicated() || c.polled.peek() == nil && (c.starved.peek() == nil || n.locks > c.config.LocksPerConn) {
		return false
	}
	n.waiter = nil
	if k.hasTurnstile {
		k.leaveTurnstile(n)
	}
	k.poll()
	n.next()
	c.serve()
	return true
}

// poll lets the key be tried from time to time, under mu, until there is a connection
// to wait on.
func (k *key) poll() {
	c := k.core
	k.phase = waiting
	k.move(nil)
	c.polled.push(&k.inQueue, k)
	if !c.polling {
		c.polling = true
		c.wg.Go(c.pollAll)
	}
}

// pollAll tries the keys that are polled, all at the same moments so that they are one
// batch, until none is.
func (c *core) pollAll() {
	for round := 1; ; round++ {
		select {
		case <-c.ctx.Done():
		case <-time.After(pollPause):
		}
		c.mu.Lock()
		c.serve()
		if c.polled.peek() == nil || c.closed {
			c.polling = false
			c.mu.Unlock()
			return
		}
		for _, k := range c.polled.slice() {
			r := k.requests.peek()
			every := 1 << min(k.polls, 3)
			if r == nil { // it was given up in the moment in which it came here
				c.polled.remove(&k.inQueue)
				k.phase = free
				k.advance()
				continue
			}
			if !k.inQueue.in || round%every != 0 {
				continue
			}
			k.polls++
			c.polled.remove(&k.inQueue)
			k.phase = free
			if err := k.ask(r); err != nil { // no room for its lock now
				k.phase = waiting
				c.polled.push(&k.inQueue, k)
			}
		}
		c.mu.Unlock()
	}
}
