package advisory

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// slotPause is how often the one waiter of all processes that may looks for a free slot;
// half of it is jitter.
const slotPause = 20 * time.Millisecond

// wait has somebody wait for the key, under mu: on the connection that it was asked on
// if that carries one lock, on one that has nothing else to do, or, polled, on
// none.
func (k *key) wait() {
	c := k.core
	k.phase = waiting
	if c.dedicated() {
		k.waitOn(k.conn)
		return
	}
	if n := c.connToWait(k); n != nil {
		k.waitOn(n)
		return
	}
	k.poll()
}

// waitOn begins to wait for the key on a connection, under mu. The connection is taken before
// the key moves to it: what the key leaves on another one may serve other waits.
func (k *key) waitOn(n *conn) {
	if n.waiter != nil { // two goroutines would use one session
		panic("BUG: two waits are given one connection")
	}
	n.waiter, n.yields, n.busy = k, false, true
	n.place()
	if k.woken == nil {
		k.woken = make(chan struct{}, 1)
	}
	k.phase = waiting
	k.move(n)
	k.core.wg.Go(func() { k.waitAtServer(n) })
}

// waitAtServer waits for the key, on a connection of which nobody else makes use meanwhile,
// until it is granted, nobody wants it any more, or the connection is lost.
func (k *key) waitAtServer(n *conn) {
	c := k.core
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(n.pending) > 0 && n.ended == nil && n.session != nil {
			n.drive()
		}
		r := k.requests.peek()
		switch {
		case n.ended != nil && n.session == nil && c.lives(): // the server may have no connection left
			n.waiter = nil
			k.poll()
			return
		case n.ended != nil:
			n.waiter = nil
			k.lost(n.ended)
			n.next()
			return
		case r == nil || c.closed || r.try:
			k.stop(n)
			return
		case n.session == nil:
			k.rest(pollPause)
			continue
		case n.yields && k.outOfTurn(n):
			return
		case k.hasTurnstile && k.mode != r.mode:
			k.leaveTurnstile(n)
			continue
		}
		k.mode = r.mode
		came := !k.hasTurnstile
		granted, err := k.waitStep(n, r)
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
		case came && k.hasTurnstile: // it has just got the turnstile, and waits for the key next
		case k.outOfTurn(n):
			return
		}
	}
}

// stop ends the wait for a key that nobody waits for any more, under mu.
func (k *key) stop(n *conn) {
	n.waiter = nil
	if k.hasTurnstile { // a try on another connection may not find it shut
		k.hasTurnstile, k.phase = false, leaving
		k.op = op{key: k, Op: session.Op{Tag: k.turnstile(), Mode: k.mode, Unlock: true}}
		n.add(&k.op)
		n.next()
		return
	}
	if n.session == nil && len(n.pending) == 0 {
		n.end(errGone) // so that nobody comes to it meanwhile
		n.cancel()
	}
	k.phase = free
	k.move(nil)
	n.next()
	k.advance()
}

// waitStep waits once: for the turnstile, and then for the key, or for a free slot of a
// semaphore. It is called under mu, which it gives up meanwhile.
func (k *key) waitStep(n *conn, r *request) (granted bool, err error) {
	c := k.core
	limit := NoTimeout
	if !r.deadline.IsZero() {
		limit = time.Until(r.deadline)
	}
	if k.hasTurnstile && k.pool {
		return k.look(n, r)
	}
	o := session.Op{Tag: k.tag, Mode: k.mode, Wait: max(limit, time.Millisecond)}
	if !k.hasTurnstile {
		o.Tag = k.turnstile()
	}
	c.stats.waitSteps.Add(1)
	switch err := n.alone(&o); {
	case err != nil || !o.Held:
		return false, cmp.Or(err, o.Err)
	case !k.hasTurnstile:
		k.hasTurnstile = true
		return false, nil
	}
	k.leaveTurnstile(n)
	k.grant()
	return true, nil
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

// leaveTurnstile gives the turnstile back, under mu.
func (k *key) leaveTurnstile(n *conn) {
	k.hasTurnstile = false
	n.add(&op{Op: session.Op{Tag: k.turnstile(), Mode: k.mode, Unlock: true}})
}

// rest waits a moment, or until it is woken, under mu, which it gives up meanwhile.
func (k *key) rest(pause time.Duration) {
	c := k.core
	c.mu.Unlock()
	defer c.mu.Lock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-k.woken:
	case <-c.ctx.Done():
	}
}

// interrupt has who waits for the key look again, under mu.
func (k *key) interrupt() {
	if n := k.conn; n != nil && n.session != nil && n.waiter == k {
		n.session.Interrupt()
	}
	k.wakeUp()
}

// wakeUp ends a rest of who waits for the key, under mu.
func (k *key) wakeUp() {
	select {
	case k.woken <- struct{}{}:
	default:
	}
}
