package advisory

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// errNoConn: every connection is in use, and the caller may not, or could not
// any longer, wait for one.
var errNoConn = errors.New("no connection")

// A backoff puts attempts to connect off, so that a server that is away is not stormed by
// all who share a connection.
type backoff struct {
	failures  int       // in a row: attempts, and sessions that died before their first answer
	notBefore time.Time // the next one
}

const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

// unused returns a connection on which there is nothing, under mu, or nil. next is the one
// that the next key goes to: it is not taken, and if there is none, one can still be made.
func (c *core) unused(next *conn) *conn {
	for n := range c.room.all {
		if n != next && n.locks == 0 && !n.busy && n.session != nil {
			return n
		}
	}
	left := c.config.MaxConns - len(c.conns)
	if !c.dedicated() && c.room.top() == nil {
		left--
	}
	if left > 0 && (!time.Now().Before(c.redial.notBefore) || !c.lives()) {
		return c.dial()
	}
	return nil
}

// dial makes a connection in the background, under mu.
func (c *core) dial() *conn {
	n := &conn{core: c, busy: true, quit: make(chan struct{})}
	ctx, cancel := context.WithCancel(c.ctx)
	n.cancel = cancel
	n.timer = time.AfterFunc(time.Hour, n.tick)
	n.timer.Stop()
	c.conns[n] = struct{}{}
	c.connected.Add(1)
	c.answers.Connected()
	c.wg.Add(1) // until it is closed
	pause := time.Duration(0)
	if !c.dedicated() {
		pause = time.Until(c.redial.notBefore)
	}
	c.wg.Go(func() { n.connect(ctx, pause) })
	return n
}

// connect makes the attempt, after the pause.
func (n *conn) connect(ctx context.Context, pause time.Duration) {
	defer n.cancel()
	c := n.core
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	s, err := c.source.Acquire(ctx)
	c.mu.Lock()
	if err == nil && n.ended == nil {
		defer c.mu.Unlock()
		n.session, n.pid, n.busy = s, s.Look(time.Now(), false).PID, true
		n.rounds = 1 // so that who connected it comes before the tick that gives it back
		c.setLimit()
		if n.waiter != nil {
			n.waiter.wakeUp()
		}
		n.next()
		return
	}
	n.unmade(err)
	c.mu.Unlock()
	if s != nil {
		s.Close(false)
	}
	c.gone()
}

// unmade is for a connection that could not be made, under mu: those who wait for it
// learn why.
func (n *conn) unmade(err error) {
	c := n.core
	if n.ended == nil { // else nobody wanted it any more
		c.redial.failed()
	}
	delete(c.conns, n)
	pending := n.pending
	n.pending = nil
	if err == nil {
		err = ErrClosed
	}
	if n.ended == nil {
		n.ended = &session.LostError{Cause: err}
	}
	n.place()
	if k := n.waiter; k != nil && !c.lives() {
		k.failAll(err)
	}
	for _, o := range pending {
		if o.key == nil || o.pass {
			o.fail(n.ended)
			continue
		}
		k := o.key
		k.phase = free
		k.move(nil)
		k.failAll(err)
		k.advance()
	}
	c.serve()
}

// lives reports whether there is a connection that carries many locks, so that a key can be
// tried although no further one can be made, under mu.
func (c *core) lives() bool {
	if c.dedicated() {
		return false
	}
	for n := range c.conns {
		if n.session != nil && n.ended == nil {
			return true
		}
	}
	return false
}

// serve gives connections to keys that have none, in order, under mu.
func (c *core) serve() {
	for k := c.starved.peek(); k != nil && !c.closed && (c.room.top() != nil || len(c.conns) < c.config.MaxConns); k = c.starved.peek() {
		c.starved.remove(&k.inQueue)
		k.phase = free
		k.advance()
	}
	for k := c.polled.peek(); k != nil && k.phase == waiting && !c.closed; k = c.polled.peek() {
		n := c.connToWait(k)
		if n == nil {
			return
		}
		c.polled.remove(&k.inQueue)
		k.waitOn(n)
	}
}

// gone is for a connection that nothing is left of.
func (c *core) gone() {
	c.connected.Add(-1)
	c.wg.Done()
}

// leave takes a connection out of what there is, under mu.
func (n *conn) leave(lost bool) {
	c := n.core
	delete(c.conns, n)
	n.timer.Stop()
	if n.ended == nil {
		n.ended = errGone
	}
	if lost && !n.proven {
		c.redial.failed()
	}
	n.place()
}

// failed puts off the next attempt, under mu.
func (b *backoff) failed() {
	pause := min(firstPause<<min(b.failures, 10), maxPause)
	b.failures++
	b.notBefore = time.Now().Add(pause/2 + rand.N(pause/2))
}

var errGone = &session.LostError{Cause: errors.New("the session was given back")}
