package advisory

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// A conn is one connection, and the keys that live on it or are asked on it: up to
// Config.LocksPerConn, and the further ones of a Lock on several keys.
//
// Who owns it: nobody for long. While busy is false its session is used by nobody. Who sets busy,
// under mu, owns the session until next, which passes it on: to a caller who sleeps until
// its operation is done, to a new goroutine, or to none. While waiter is set its
// goroutine owns the session, and drives what others ask for between its slices.
//
// Operations that come while a statement is under way go out together in the next. The
// goroutine that finds the connection with nothing to do drives it; when its statement
// is answered, one of those who wait drives the next. A single operation therefore pays
// for no other goroutine, and is the plain statement.
type conn struct {
	core    *core
	session session.Session    // nil while it is being made
	pid     uint32             // of the session
	cancel  context.CancelFunc // ends that

	// guarded by core.mu
	busy    bool               // somebody drives it, or waits on it
	inRoom  node[conn]         // in core.room
	lent    bool               // for a question who holds a lock
	waiter  *key               // that a wait step is under way for
	yields  bool               // it is asked to leave the connection to a key that has none
	pending []*op              // in order
	keys    list[key]          // that live on it, are asked or waited for
	locks   int                // in keys
	since   time.Time          // of the last grant
	ended   *session.LostError // nil = it lives
	quit    chan struct{}      // closed when it has ended and nobody drives it

	timer        *time.Timer
	rounds, seen uint64 // round trips, and those that the timer has seen
	armed        bool   // the timer runs
	watched      bool   // the session is under watch
	proven       bool   // the server answered at least once

	slow atomic.Bool  // its statement takes long
	more atomic.Int32 // len(pending), for who looks without mu

	// of who drives
	expected int // who waited for the last batch, or was in it
	batch    []*op
	args     []*session.Op
}

// rest is for a connection that may have nothing to do now, or room, under mu: who needs
// one gets it, and after a while it is watched or given back.
func (n *conn) rest() {
	if !n.busy && !n.armed && n.ended == nil && n.session != nil {
		n.armed = true
		n.timer.Reset(idleAfter)
	}
	if n.place() {
		n.core.serve()
	}
}

// place keeps core.room right, under mu, and reports whether the connection has just come
// in: one that waits takes no key, and a key that shall have a connection of its own
// waits until that has nothing to do.
func (n *conn) place() bool {
	c := n.core
	room := n.ended == nil && n.waiter == nil && !n.lent && n.locks < c.config.LocksPerConn
	if c.dedicated() {
		room = room && !n.busy && n.session != nil
	}
	if room == n.inRoom.in {
		return false
	}
	if !room {
		c.room.remove(&n.inRoom)
		return false
	}
	c.room.push(&n.inRoom, n)
	return true
}

// tick comes a while after the connection was used. One that did nothing since is
// given back if nothing is held on it, and watched otherwise.
func (n *conn) tick() {
	c := n.core
	c.mu.Lock()
	switch {
	case n.busy || n.ended != nil: // it is armed again when it is not
		n.armed = false
	case n.rounds != n.seen:
		n.seen = n.rounds
		n.timer.Reset(idleAfter)
	case n.locks > 0:
		n.armed = false
		n.watchNow()
	default:
		n.leave(false)
		c.mu.Unlock()
		n.session.Close(true)
		c.gone()
		return
	}
	c.mu.Unlock()
}

// watchNow has the session watched at once, under mu, unless something else would find
// out that it ended.
func (n *conn) watchNow() {
	if n.busy || n.watched || n.ended != nil {
		return
	}
	n.watched = true
	n.session.Watch(func(err error) {
		n.core.mu.Lock()
		defer n.core.mu.Unlock()
		n.end(err)
	})
}
