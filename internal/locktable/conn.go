package locktable

import (
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// A Conn is one connection, and the keys that live on it or are requested on it: up to Limits.LocksPerConn, and the
// further keys of a lock on several keys.
//
// While it is Idle, its session is unused. Drive or Attend hand the session to the carrier, which passes it on with
// Answer, Next or Return. Operations that arrive meanwhile are pending, and are sent together. A goroutine that waits
// on the connection also drives these operations, between its steps.
type Conn struct {
	Carrier any // for the carrier

	table    *Table
	number   int
	phase    ConnPhase
	inConns  node[Conn]
	inRoom   node[Conn]
	waiter   *Key // the key that a goroutine waits for on it
	yields   bool // its waiter must leave it to a key without a connection
	pending  []*Op
	batch    []*Op // sent and not answered yet
	keys     list[Key]
	locks    int     // keys
	since    Instant // of the last grant
	verified Instant // the session was alive then, and had all its locks
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

// Number identifies the connection.
func (n *Conn) Number() int { return n.number }

// Locks is the number of keys that live on it or are requested on it.
func (n *Conn) Locks() int { return n.locks }

// Pending is the number of operations for its next statement.
func (n *Conn) Pending() int { return len(n.pending) }

// Keys yields the keys that live on it or are requested on it.
func (n *Conn) Keys(yield func(*Key) bool) { n.keys.all(yield) }

// Waiter is the key that a goroutine waits for on it; nil = none.
func (n *Conn) Waiter() *Key { return n.waiter }

// Callers yields the requests that sleep until a pending operation is done.
func (n *Conn) Callers(yield func(*Request) bool) {
	for _, o := range n.pending {
		if o.By != nil && o.By.phase == queued && !yield(o.By) {
			return
		}
	}
}

// Lost is why it ended; nil = it has not ended.
func (n *Conn) Lost() *session.LostError { return n.lost }

// alive reports whether it can carry locks, now or once it is connected.
func (n *Conn) alive() bool { return n.phase != Unwanted && n.phase != Ended }

// hasSession reports whether it is connected and alive.
func (n *Conn) hasSession() bool { return n.phase == Idle || n.phase == Busy || n.phase == Lent }

// settledAfter is how long a lock must have lived on a connection before a wait for another key may use it: the unlock
// must interrupt that wait.
const settledAfter = 100 * time.Millisecond

// pass hands the connection to its waiter or to the carrier for its pending operations, or lets it rest.
func (t *Table) pass(n *Conn) {
	switch {
	case n.waiter != nil: // its goroutine continues
	case n.phase == Ended:
		t.do(Command{Kind: Close, Conn: n})
	case n.phase == Making, n.phase == Unwanted: // pending operations continue when it is connected
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

// rest is for a connection that may be idle now, or has room again: it serves keys that need one.
func (t *Table) rest(n *Conn) {
	if n.phase == Idle {
		t.do(Command{Kind: Rest, Conn: n})
	}
	if t.place(n) || n.inRoom.in && t.starved.peek() != nil {
		t.serve()
	}
}

// place maintains the list of connections with room, and reports whether n was just added. A connection with a waiter
// takes no key. A dedicated key waits until the connection is idle.
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

// dial requests a new connection.
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

// Connected records that the connection is made. It reports false if the connection is Unwanted, or the table is
// closed: the carrier then closes the session, and the table forgets the connection.
func (t *Table) Connected(n *Conn, now Instant) bool {
	if !t.begin(EventConnected, now, n, nil, nil) {
		return false
	}
	defer t.guard()
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

// Unmade records that the connection could not be made. No connection is made for a wait before notBefore. The requests
// that wait for the connection receive the cause. hopeless: the server has no room for its locks.
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

// DialFrom sets when a connection may next be made for a wait, if another one is alive.
func (t *Table) DialFrom(at Instant) {
	t.note(EventDialFrom, at, nil, nil, nil)
	t.notBefore = at
}

// lives reports whether a connection for many locks exists, so that a key can be tried although no further one can be
// made.
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

// Verified records when the session of a connection was last seen alive, with all its locks; 0 = unknown again.
func (t *Table) Verified(n *Conn, at Instant) {
	t.note(EventVerified, at, n, nil, nil)
	n.verified = at
}

// fresh reports whether the session was recently seen alive.
func (n *Conn) fresh(now Instant) bool {
	return n.hasSession() && n.verified > 0 && now-n.verified <= session.VerifiedFor
}

// Resting is the carrier's action for a connection that was idle for a while.
type Resting uint8

// The results of Rested.
const (
	InUse  Resting = iota // nothing
	Guard                 // locks live on it: watch it
	Forget                // nothing lives on it: close its session for reuse; the table has forgotten it
)

// Rested returns what to do with a connection that was idle for a while.
func (t *Table) Rested(n *Conn, now Instant) Resting {
	if !t.begin(EventRested, now, n, nil, nil) {
		return InUse
	}
	defer t.guard()
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

// Borrow returns a connection that stays unused until Return, so that the carrier can query on it. It may be Making:
// then the carrier pings first, and borrows again. nil = there is none.
func (t *Table) Borrow(now Instant) *Conn {
	if !t.begin(EventBorrow, now, nil, nil, nil) {
		return nil
	}
	defer t.guard()
	n := t.unused(nil)
	if n != nil && n.phase == Idle {
		n.phase = Lent
		t.place(n)
	}
	return n
}

// Return ends the use of a borrowed connection; lost is not nil if its session ended.
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

// Ping asks the server whether a connection is alive. The answer settles the request.
func (t *Table) Ping(n *Conn, r *Request, now Instant) {
	if !t.begin(EventPing, now, n, r, nil) {
		r.phase, r.err = settled, t.broken
		return
	}
	defer t.guard()
	if r.Settled() {
		return // it failed with an earlier ping
	}
	r.phase = queued
	r.left++
	r.table = t
	n.push(&Op{Kind: Ping, By: r})
}

// unused returns an unused connection, or nil. It never takes next, the connection for the next key. If next is nil,
// unused leaves room to make one for that key.
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
