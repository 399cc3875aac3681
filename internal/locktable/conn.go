package locktable

import (
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// A Conn is one connection, and the keys that live on it or are asked on it: up to Limits.LocksPerConn, and the further ones of
// a lock on several keys.
//
// While it is Idle nobody uses its session. Drive or Attend hand the session to the carrier, which passes it on by Answer, Next
// or Return. Operations that come meanwhile are pending, and go out together. While somebody waits on it, the goroutine that
// waits also drives what others ask for, between its steps.
type Conn struct {
	Carrier any // for the carrier

	table    *Table
	number   int
	phase    ConnPhase
	inConns  node[Conn]
	inRoom   node[Conn]
	waiter   *Key // that is waited for on it
	yields   bool // its waiter is to leave it to a key that has none
	slow     bool // an answer takes long
	pending  []*Op
	batch    []*Op // that is under way
	keys     list[Key]
	locks    int     // keys
	since    Instant // of the last grant
	verified Instant // the session lived then, and had all its locks
	lost     *session.LostError
}

// A ConnPhase is the state of a connection.
type ConnPhase uint8

// The phases of a connection; see the package's documentation.
const (
	Making ConnPhase = iota
	Unwanted
	Idle
	Busy
	Lent
	Ended
)

// Phase is the state of the connection.
func (n *Conn) Phase() ConnPhase { return n.phase }

// Number tells connections apart.
func (n *Conn) Number() int { return n.number }

// Locks is the number of keys that live on it or are asked on it.
func (n *Conn) Locks() int { return n.locks }

// Pending is the number of operations that wait for its next statement.
func (n *Conn) Pending() int { return len(n.pending) }

// Keys yields the keys that live on it or are asked on it.
func (n *Conn) Keys(yield func(*Key) bool) { n.keys.all(yield) }

// Waiter is the key that is waited for on it; nil = none.
func (n *Conn) Waiter() *Key { return n.waiter }

// Callers yields the requests that sleep until one of the pending operations is done.
func (n *Conn) Callers(yield func(*Request) bool) {
	for _, o := range n.pending {
		if o.By != nil && o.By.phase == queued && !yield(o.By) {
			return
		}
	}
}

// Lost is why it ended; nil = it did not.
func (n *Conn) Lost() *session.LostError { return n.lost }

// alive reports whether it can carry locks, now or once it is made.
func (n *Conn) alive() bool { return n.phase != Unwanted && n.phase != Ended }

// hasSession reports whether it is made, and alive.
func (n *Conn) hasSession() bool { return n.phase == Idle || n.phase == Busy || n.phase == Lent }

// settledAfter is how long a lock has lived on a connection when another key may be waited for there: the unlock must interrupt
// that wait.
const settledAfter = 100 * time.Millisecond

// pass lets somebody go on with what is pending, or the connection rest.
func (t *Table) pass(n *Conn) {
	switch {
	case n.waiter != nil: // whose goroutine goes on
	case n.phase == Ended:
		t.do(Command{Kind: Close, Conn: n})
	case n.phase == Making, n.phase == Unwanted: // what is pending goes on when it is made
		t.rest(n)
	case len(n.pending) > 0:
		n.phase = Busy
		t.do(Command{Kind: Drive, Conn: n})
		t.rest(n)
	default:
		n.phase = Idle
		t.rest(n)
	}
}

// rest is for a connection that may have nothing to do now, or has room again: keys that need one get it.
func (t *Table) rest(n *Conn) {
	if n.phase == Idle {
		t.do(Command{Kind: Rest, Conn: n})
	}
	if t.place(n) || n.inRoom.in && t.starved.peek() != nil {
		t.serve()
	}
}

// place keeps the list of connections with room, and reports whether n has just come in. One that is waited on takes no key. A key
// that shall have a connection of its own waits until that has nothing to do.
func (t *Table) place(n *Conn) bool {
	room := n.alive() && n.waiter == nil && n.phase != Lent && n.locks < t.limits.LocksPerConn
	if t.dedicated() {
		room = room && n.phase == Idle
	}
	if room == n.inRoom.in {
		return false
	}
	if !room {
		t.room.remove(&n.inRoom)
		return false
	}
	t.room.push(&n.inRoom, n)
	return true
}

// dedicated reports whether a connection carries one lock at most.
func (t *Table) dedicated() bool { return t.limits.LocksPerConn == 1 }

// dial makes a connection.
func (t *Table) dial() *Conn {
	t.made++
	n := &Conn{table: t, number: t.made}
	t.conns.push(&n.inConns, n)
	t.connCount++
	t.do(Command{Kind: Dial, Conn: n})
	return n
}

// remove forgets a connection.
func (t *Table) remove(n *Conn) {
	if t.conns.remove(&n.inConns) {
		t.connCount--
	}
}

// Connected says that the connection is made. If it is Unwanted, or the table is closed, it reports false: the carrier closes the session,
// and nothing is left of the connection.
func (t *Table) Connected(n *Conn, now Instant) bool {
	t.note(EventConnected, now, n, nil, nil)
	defer t.guard()
	if t.broken != nil {
		return false
	}
	t.now = now
	if n.phase != Making {
		t.unmade(n, errGone, false)
		return false
	}
	n.phase = Busy
	if n.waiter != nil {
		t.do(Command{Kind: Wake, Conn: n})
	}
	t.pass(n)
	return true
}

// Unmade says that the connection could not be made, and that none should be made for a wait before an Instant. Those who wait
// for it learn why. hopeless: the server has no room for its locks.
func (t *Table) Unmade(n *Conn, now Instant, cause error, notBefore Instant, hopeless bool) {
	if t.record != nil {
		t.record(Event{Kind: EventUnmade, At: now, Conn: n, Err: cause, NotBefore: notBefore, Flag: hopeless})
	}
	defer t.guard()
	if t.broken != nil {
		return
	}
	t.now = now
	if n.phase == Making {
		t.notBefore = notBefore
	}
	t.unmade(n, cause, hopeless)
}

func (t *Table) unmade(n *Conn, cause error, hopeless bool) {
	t.remove(n)
	pending := n.pending
	n.pending = nil
	if n.phase == Making {
		n.phase = Unwanted
		n.lost = &session.LostError{Cause: cause}
	}
	t.place(n)
	if n.waiter != nil && (hopeless || !t.lives()) {
		n.waiter.failAll(cause)
	}
	for _, o := range pending {
		k := o.key
		if k == nil || o.Kind != Try {
			o.fail(n.lost)
			continue
		}
		k.phase = Free
		k.move(nil)
		k.failAll(cause)
		k.advance()
	}
	t.serve()
}

// DialFrom says from when on a connection may be made for a wait, if another one lives.
func (t *Table) DialFrom(at Instant) {
	t.note(EventDialFrom, at, nil, nil, nil)
	t.notBefore = at
}

// lives reports whether there is a connection that carries many locks, so that a key can be tried although no further one can be made.
func (t *Table) lives() bool {
	if t.dedicated() {
		return false
	}
	for n := range t.conns.all {
		if n.hasSession() {
			return true
		}
	}
	return false
}

// serve gives connections to keys that have none, in order.
func (t *Table) serve() {
	for k := t.starved.peek(); k != nil && t.closed == nil && (t.room.top() != nil || t.connCount < t.limits.MaxConns); k = t.starved.peek() {
		t.starved.remove(&k.inQueue)
		k.phase = Free
		k.advance()
	}
	for k := t.polled.peek(); k != nil && k.phase == Waiting && t.closed == nil; k = t.polled.peek() {
		n := t.connToWait(k)
		if n == nil {
			return
		}
		t.polled.remove(&k.inQueue)
		k.waitOn(n)
	}
}

// Verified says when the session of a connection was last seen to live, with all its locks; 0 = that is not known any more.
func (t *Table) Verified(n *Conn, at Instant) {
	t.note(EventVerified, at, n, nil, nil)
	n.verified = at
}

// fresh reports whether the session was seen alive just now.
func (n *Conn) fresh(now Instant) bool {
	return n.hasSession() && n.verified > 0 && now-n.verified <= session.VerifiedFor
}

// Resting is what the carrier does with a connection that had nothing to do for a while.
type Resting uint8

// What Rested returns.
const (
	InUse  Resting = iota // nothing
	Guard                 // locks live on it: watch it
	Forget                // nothing lives on it: close its session for reuse; nothing is left of the connection
)

// Rested is for a connection that had nothing to do for a while.
func (t *Table) Rested(n *Conn, now Instant) Resting {
	t.note(EventRested, now, n, nil, nil)
	defer t.guard()
	if t.broken != nil {
		return InUse
	}
	t.now = now
	switch {
	case n.phase != Idle:
		return InUse
	case n.locks > 0:
		return Guard
	}
	t.remove(n)
	n.phase, n.lost = Ended, &session.LostError{Cause: errGone}
	t.place(n)
	return Forget
}

// Borrow returns a connection that nobody uses until Return, so that the carrier can ask a question on it. It may be Making: then the carrier
// pings first, and borrows again. nil = there is none.
func (t *Table) Borrow(now Instant) *Conn {
	t.note(EventBorrow, now, nil, nil, nil)
	defer t.guard()
	if t.broken != nil {
		return nil
	}
	t.now = now
	n := t.unused(nil)
	if n != nil && n.phase == Idle {
		n.phase = Lent
		t.place(n)
	}
	return n
}

// Return ends the use of a connection that was borrowed; lost is not nil if its session ended.
func (t *Table) Return(n *Conn, now Instant, lost error) {
	if t.record != nil {
		t.record(Event{Kind: EventReturn, At: now, Conn: n, Err: lost})
	}
	defer t.guard()
	if t.broken != nil {
		return
	}
	t.now = now
	if lost != nil {
		t.end(n, lost)
	}
	t.pass(n)
}

// Ping asks the server whether a connection lives. The request is settled by the answer.
func (t *Table) Ping(n *Conn, r *Request, now Instant) {
	t.note(EventPing, now, n, r, nil)
	defer t.guard()
	if t.broken != nil {
		r.phase, r.err = settled, t.broken
		return
	}
	t.now = now
	if r.phase == settled {
		return // it failed with a ping before
	}
	r.phase = queued
	r.left++
	r.table = t
	n.push(&Op{Kind: Ping, By: r})
}

// unused returns a connection on which there is nothing, or nil. next is the one that the next key goes to: it is not taken, and if there is
// none, one can still be made.
func (t *Table) unused(next *Conn) *Conn {
	for n := range t.room.all {
		if n != next && n.locks == 0 && n.phase == Idle {
			return n
		}
	}
	left := t.limits.MaxConns - t.connCount
	if !t.dedicated() && t.room.top() == nil {
		left--
	}
	if left > 0 && t.closed == nil && (t.now >= t.notBefore || !t.lives()) {
		return t.dial()
	}
	return nil
}
