package advisory

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// look finds a lock whose time ran out while nobody could tell: the process was
// stopped, or the machine suspended.
func (l *Lock) look() {
	now := time.Now()
	i := slices.IndexFunc(l.conns, func(n *conn) bool { return n.state(now) == session.Lost })
	if i < 0 { // they do not change once the lock is out
		return
	}
	c := l.core
	c.mu.Lock()
	if l.live() {
		l.conns[i].expire(now)
	}
	cause := l.cause
	lost := cause != nil && l.complete && !l.released
	c.mu.Unlock()
	if lost {
		_ = l.lose(cause) // whoever found the loss may not have come to this lock yet
	}
}

// state is that of the session, or Doubtful while a statement is overdue.
func (n *conn) state(now time.Time) session.State {
	state := n.session.Look(now, false).State
	if n.slow.Load() {
		state = max(state, session.Doubtful)
	}
	return state
}

// expire ends the connection if its time is over, under mu.
func (n *conn) expire(now time.Time) {
	if n.ended != nil || n.session == nil {
		return
	}
	if status := n.session.Look(now, false); status.State == session.Lost {
		n.end(cmp.Or(status.Loss, session.ErrSilent))
	}
}

// end makes the connection, and all that lives on it, lost, once, under mu. Those who
// held a lock on it are told before it is closed, in the background.
func (n *conn) end(cause error) {
	if n.ended != nil {
		return
	}
	c := n.core
	lost, ok := errors.AsType[*session.LostError](cause)
	if !ok {
		lost = &session.LostError{Cause: cause}
	}
	if n.session == nil { // it is being made, and the attempt ends with the core
		n.ended = lost
		return
	}
	n.leave(true)
	n.ended = lost
	c.conns[n] = struct{}{} // until it is closed
	if !n.busy {
		n.busy = true
		close(n.quit)
	}
	var locks []*Lock
	var open []*key
	for _, k := range n.keys.slice() { // the loss of a lock can change what is asked for
		if k.conn != n || k.phase != held {
			continue // who asks or waits learns it from the answer
		}
		for _, l := range k.holders {
			if l.loses(lost.Cause) {
				locks = append(locks, l)
			}
		}
		clear(k.holders)
		k.holders = k.room[:0]
		k.phase = free
		k.move(nil)
		open = append(open, k)
	}
	pending := n.pending
	n.pending = nil
	n.more.Store(0)
	for _, o := range pending {
		o.fail(lost)
	}
	for _, k := range open {
		if k.core != nil { // else it is forgotten already
			k.advance()
		}
	}
	c.wg.Go(func() { n.close(locks, lost.Cause) })
}

// loses notes the loss of the lock, under core.mu, and reports whether its user is to be
// told. One that is not complete fails with its request.
func (l *Lock) loses(cause error) bool {
	if l.released || l.cause != nil {
		return false
	}
	l.end()
	l.cause = cause
	if r := l.pending; r != nil && !r.settled && r.key.requests.remove(&r.inQueue) {
		r.key.waiting--
		k := r.key
		r.settle(&session.LostError{Cause: cause})
		if k.waiting == 0 {
			k.abandon()
		}
		k.advance()
	}
	return l.complete
}

// close tells the users of lost locks, and closes the connection.
func (n *conn) close(locks []*Lock, cause error) {
	for _, l := range locks {
		_ = l.lose(cause) // the lock keeps it
	}
	n.session.Kill(cause) // so that who drives need not wait for an answer
	<-n.quit
	n.session.Close(false)
	c := n.core
	c.mu.Lock()
	delete(c.conns, n)
	c.serve()
	c.mu.Unlock()
	c.gone()
}

// lose ends the lock with a cause, once, and returns the first loss.
func (l *Lock) lose(cause error) *LostError {
	if s, ok := errors.AsType[*session.LostError](cause); ok {
		cause = s.Cause
	}
	l.mu.Lock()
	if l.loss != nil {
		defer l.mu.Unlock()
		return l.loss
	}
	loss := &LostError{Key: l.keys[0], Held: time.Since(l.since), Cause: cause}
	l.loss = loss
	if l.cancel != nil {
		l.cancel(loss)
	}
	if l.lost != nil {
		close(l.lost)
	}
	l.mu.Unlock()
	l.core.traceLoss(l, loss)
	return loss
}
