package advisory

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// errNoSlot: every connection is in use, and the caller may not, or could not
// any longer, wait for one.
var errNoSlot = errors.New("no slot")

// A line is the place of one of the connections that try, which has one while it is
// needed. A key goes to the line that its hash says.
type line struct {
	conn      *conn     // nil = none
	failures  int       // in a row: attempts to connect, and sessions that died before their first answer
	notBefore time.Time // of the next attempt
}

const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

// failed puts off the next attempt, under mu.
func (l *line) failed() {
	pause := min(firstPause<<min(l.failures, 10), maxPause)
	l.failures++
	l.notBefore = time.Now().Add(pause/2 + rand.N(pause/2))
}

// spread is a hash of a tag that is the same in every process.
func spread(tag namespace.Tag) uint64 {
	h := uint64(tag.ClassID)<<32 | uint64(tag.ObjID)
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd // of MurmurHash3's finalizer
	h ^= h >> 33
	return h
}

// connFor returns the connection to ask for a key on, under mu, which it may begin to
// make; nil = there is none, and no room for one.
func (c *core) connFor(k *key, r *request) *conn {
	if n := r.lock.own; n != nil && n.ended == nil {
		return n
	}
	if !c.dedicated() {
		l := &c.lines[spread(k.tag)%uint64(len(c.lines))]
		if l.conn == nil {
			l.conn = c.dial(l)
		}
		return l.conn
	}
	return c.spareConn()
}

// spareConn returns a connection on which there is nothing, under mu, or nil.
func (c *core) spareConn() *conn {
	for last, n := range slices.Backward(c.idle) {
		c.idle, n.inIdle = c.idle[:last], false
		if n.ended == nil && n.locks == 0 && !n.busy {
			return n
		}
	}
	if c.outside() < c.config.MaxConns-len(c.lines) {
		return c.dial(nil)
	}
	return nil
}

// outside counts the connections that are of no line, under mu.
func (c *core) outside() int {
	n := len(c.conns)
	for i := range c.lines {
		if c.lines[i].conn != nil {
			n--
		}
	}
	return n
}

// serve gives connections to keys that have none, in order, under mu.
func (c *core) serve() {
	for k := c.starved.peek(); k != nil && !c.closed && (len(c.idle) > 0 || c.outside() < c.config.MaxConns); k = c.starved.peek() {
		c.starved.remove(&k.inLine)
		k.phase = free
		k.advance()
	}
	for k := c.parked.peek(); k != nil && k.phase == waiting && !c.closed; k = c.parked.peek() {
		n := c.connToWait(k)
		if n == nil {
			return
		}
		c.parked.remove(&k.inLine)
		k.waitOn(n)
	}
}

// dial makes a connection in the background, under mu.
func (c *core) dial(l *line) *conn {
	n := &conn{core: c, line: l, busy: true, quit: make(chan struct{})}
	ctx, cancel := context.WithCancel(c.ctx)
	n.cancel = cancel
	n.timer = time.AfterFunc(time.Hour, n.tick)
	n.timer.Stop()
	c.conns[n] = struct{}{}
	c.wg.Add(1) // until it is closed
	pause := time.Duration(0)
	if l != nil {
		pause = time.Until(l.notBefore)
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
			n.waiter.nudge()
		}
		n.next()
		return
	}
	n.unmade(err)
	c.mu.Unlock()
	if s != nil {
		s.Close(false)
	}
	c.wg.Done()
}

// unmade is for a connection that could not be made, under mu: those who wait for it
// learn why.
func (n *conn) unmade(err error) {
	c := n.core
	if n.line != nil && n.line.conn == n {
		n.line.conn = nil
		n.line.failed()
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
	if k := n.waiter; k != nil {
		k.failAll(err)
	}
	for _, o := range pending {
		if o.key == nil || o.pass {
			o.done(n.ended)
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

// leave takes a connection out of what there is, under mu.
func (n *conn) leave(lost bool) {
	c := n.core
	delete(c.conns, n)
	n.timer.Stop()
	if n.ended == nil {
		n.ended = errGone
	}
	if l := n.line; l != nil && l.conn == n {
		l.conn = nil
		switch {
		case n.proven:
			l.failures, l.notBefore = 0, time.Time{}
		case lost:
			l.failed()
		}
	}
	if n.inIdle {
		n.inIdle = false
		c.idle = slices.DeleteFunc(c.idle, func(o *conn) bool { return o == n })
	}
}

var errGone = &session.LostError{Cause: errors.New("the session was given back")}
