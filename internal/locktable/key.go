package locktable

import (
	"cmp"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

// A Key is what this process knows of one lock: who holds it here, who waits here, and what is asked of the server about it.
type Key struct {
	table     *Table
	tag       Tag
	semaphore Tag  // of which it is a slot; zero = none
	pool      bool // it is a semaphore: one of its slots is asked for, which is then a key of its own
	phase     Phase
	tried     []Tag  // of a semaphore: the slots that the server is asked for now
	slots     int    // of its semaphore, if it is a slot, as far as its user knows
	handOvers uint32 // since the server granted it

	conn    *Conn     // that the lock lives on, or is asked or waited for on; nil = none
	inConn  node[Key] // in conn.keys
	inQueue node[Key] // in Table.starved or polled
	mode    Mode      // in which it is held, asked or waited for
	at      Instant   // when the server granted it
	gate    gate      // of a lock that is held in shared mode
	opened  Instant   // when the turnstile was last found open

	holders  []*Holder // several only if all are shared
	requests list[Request]
	waiting  int // requests
	tries    int // of which do not wait
	op       Op  // the one that is under way

	gateTag      Tag   // its turnstile
	hasTurnstile bool  // that is held on conn, in mode
	loss         error // the last loss of a connection that it was asked on
	losses       int   // since it was last granted
	polls        int   // while it was polled, or its turnstile was shut

	room [1]*Holder // for the usual user
}

// A Phase is the state of a key.
type Phase uint8

// The phases of a key; see the package's documentation.
const (
	Free Phase = iota
	Asking
	Starved
	Pausing
	Waiting
	Held
	Returning
)

// Tag is the key's tag.
func (k *Key) Tag() Tag { return k.tag }

// Phase is the key's state.
func (k *Key) Phase() Phase { return k.phase }

// Conn is the connection that it lives on, is asked or waited for on; nil = none.
func (k *Key) Conn() *Conn { return k.conn }

// Mode is the mode in which it is held.
func (k *Key) Mode() Mode { return k.mode }

// Since is when the server granted it.
func (k *Key) Since() Instant { return k.at }

// Slots is the size of its semaphore, if it is a slot.
func (k *Key) Slots() int { return k.slots }

// HandOvers counts how often it passed to another request without the server.
func (k *Key) HandOvers() uint32 { return k.handOvers }

// Holders are those that hold it.
func (k *Key) Holders() []*Holder { return k.holders }

// Waiting is the number of requests in its queue.
func (k *Key) Waiting() int { return k.waiting }

// Requests yields the requests in its queue.
func (k *Key) Requests(yield func(*Request) bool) { k.requests.all(yield) }

// turnstile is the lock that whoever waits for the key takes first, in the mode in which it wants the key, and keeps until it has the
// key. A wait at the server goes in steps, after each of which its place in the server's queue is lost. While a waiter has the turnstile, nobody
// else waits before it, and no reader comes in, because readers pass the turnstile.
func (k *Key) turnstile() Tag {
	if !k.gateTag.Valid() { // a semaphore has that of its key
		k.gateTag = turnstile.Of(k.tag)
	}
	return k.gateTag
}

// advance does what can be done for the requests in the queue, when something has changed.
func (k *Key) advance() {
	for {
		r := k.requests.peek()
		switch {
		case k.phase == Held && r != nil && !k.conflicts(r.Mode):
			if !k.join(r) {
				return
			}
			continue
		case k.phase == Held && r != nil && r.Try:
			k.refuse(r, ErrTaken)
			continue
		case k.phase != Free:
			return
		case r == nil || k.table.closed != nil:
			k.move(nil)
			k.tidy()
			return
		}
		if err := k.ask(r); err != nil {
			k.refuse(r, err)
			continue
		}
		return
	}
}

// ask tries the key for the first request: now, or when there is a connection for it. After an error nothing is under way.
//
// A key stays on the connection that it has, and those of one holder go to one. Any other goes to the last connection with room, or
// to a new one.
func (k *Key) ask(r *Request) error {
	t, n := k.table, k.conn
	if k.phase != Free { // a session would be let in again to what it has
		panic(BugError{"a lock is asked for that is held, or asked for already"})
	}
	if t.maxLocks > 0 && t.used >= t.maxLocks && n == nil {
		return &session.CapError{Locks: t.used, MaxLocks: t.maxLocks, LockTable: t.lockTable}
	}
	if t.triedAsSlot(k) {
		k.move(nil)
		k.pause()
		return nil
	}
	if own := r.Holder.own; own != nil && own.alive() {
		n = own
	}
	if n == nil {
		n = t.room.top()
	}
	switch {
	case n != nil:
	case t.connCount < t.limits.MaxConns:
		n = t.dial()
	case t.yield():
		k.starve()
		return nil
	case r.nested(): // those that hold the connections may be waiting for the caller's locks
		return ErrNoConn
	default:
		k.refuseNested(ErrNoConn)
		k.starve()
		return nil
	}
	k.move(n)
	if r.Part {
		r.Holder.own = n
	}
	k.mode = r.Mode
	k.op = Op{Kind: Try, key: k, By: r, Tag: k.tag, Mode: r.Mode}
	switch {
	case k.pool:
		k.op.Any, k.op.Turnstile = t.freeSlots(r), k.turnstile()
		k.tried = k.op.Any
		if len(k.op.Any) == 0 { // this process has them all
			k.wait()
			return nil
		}
	case r.Mode == Shared:
		k.op.Turnstile = k.turnstile()
	}
	k.phase = Asking
	n.push(&k.op)
	return nil
}

// starve has the key wait for a connection.
func (k *Key) starve() {
	k.phase = Starved
	k.table.starved.push(&k.inQueue, k)
}

// refuseNested ends the requests of callers that hold locks, if there is no room for the key.
func (k *Key) refuseNested(err error) {
	for r := range k.requests.all {
		if r.nested() {
			k.refuse(r, err)
		}
	}
}

// move makes n the connection of the key, nil for none.
func (k *Key) move(n *Conn) {
	if k.conn == n {
		return
	}
	if o := k.conn; o != nil {
		o.keys.remove(&k.inConn)
		o.locks--
		k.table.used--
		defer k.table.rest(o)
	}
	if k.conn = n; n != nil {
		n.keys.push(&k.inConn, k)
		n.locks++
		k.table.used++
		k.table.place(n)
	}
}

// conflicts reports whether a lock in this mode cannot exist beside what this process holds.
func (k *Key) conflicts(mode Mode) bool {
	return k.phase == Held && (mode == Exclusive || k.mode == Exclusive)
}

// Conflicts reports whether a lock in this mode cannot exist beside what this process holds.
func (k *Key) Conflicts(mode Mode) bool { return k.conflicts(mode) }

// denied is for a key that was not granted: another process holds it, or the server has a reason.
func (k *Key) denied(reason error) {
	k.tried = nil
	if reason == nil {
		k.refuseTries()
	} else if r := k.requests.peek(); r != nil {
		k.refuse(r, reason)
	}
	r := k.requests.peek()
	if reason != nil || r == nil || k.table.closed != nil {
		k.phase = Free
		k.move(nil)
		k.advance()
		return
	}
	r.waits(0)
	r.suspect()
	k.wait()
}

// refuseTries is for a key that another process turned out to hold.
func (k *Key) refuseTries() {
	for r := range k.requests.all {
		if k.tries == 0 {
			return
		}
		if r.Try {
			k.refuse(r, ErrTaken)
		}
	}
}

// dropped is for a key whose connection ended before it was granted. All connections that were idle end when a server restarts, so
// another one is asked. The loss is reported after more of them than there can be. In between the server is not stormed.
func (k *Key) dropped(lost error) {
	k.phase, k.hasTurnstile, k.tried = Free, false, nil
	k.move(nil)
	k.losses, k.loss = k.losses+1, lost
	switch {
	case k.waiting == 0 || k.table.closed != nil:
	case k.losses > k.table.limits.MaxConns+3:
		k.failAll(lost)
	case k.losses > 2:
		k.pause()
		return
	}
	k.advance()
}

// pauseLeast is how long a key pauses at least; the carrier adds half of it at most, by chance.
const pauseLeast = 50 * time.Millisecond

// pause asks for the key again in a while.
func (k *Key) pause() {
	k.phase = Pausing
	k.table.do(Command{Kind: Pause, Tag: k.tag, Pool: k.pool, Delay: pauseLeast})
}

// Resume ends a pause.
func (t *Table) Resume(now Instant, tag Tag, pool bool) {
	if t.record != nil {
		t.record(Event{Kind: EventResume, At: now, Tag: tag, Flag: pool})
	}
	defer t.guard()
	if t.broken != nil {
		return
	}
	t.now = now
	if k := t.table(pool)[tag]; k != nil && k.phase == Pausing { // else a semaphore got it meanwhile
		k.phase = Free
		k.advance()
	}
}

// failAll ends all requests that wait now.
func (k *Key) failAll(err error) {
	for r := range k.requests.all {
		k.refuse(r, err)
	}
	k.abandon()
}

// refuse ends a request with an error.
func (k *Key) refuse(r *Request, err error) {
	k.leaveQueue(r)
	r.settle(err)
}

// abandon ends what is under way for a key that nobody wants any more, as far as it can be ended.
func (k *Key) abandon() {
	t := k.table
	switch k.phase {
	case Starved:
		t.starved.remove(&k.inQueue)
		k.phase = Free
	case Waiting:
		if t.polled.remove(&k.inQueue) {
			k.phase = Free
			k.move(nil)
			break
		}
		k.interrupt()
	case Asking:
		if k.conn.drop(&k.op) {
			k.phase, k.tried = Free, nil
			k.move(nil)
		}
	}
}

// reason says why a request for the key had no connection, or no answer; nil = another process holds it.
func (k *Key) reason() error {
	switch {
	case k.phase == Starved, k.phase == Pausing:
		return cmp.Or(k.loss, ErrNoConn)
	case k.phase == Asking && k.conn.phase == Making:
		return cmp.Or(k.loss, ErrDialing)
	case k.phase == Asking:
		return ErrNoReply
	}
	return nil
}

// freeSlots are those that this process neither has nor asks for, also if a mutex on one waits for the connection of the semaphore, from a random one on, so that callers spread.
func (t *Table) freeSlots(r *Request) []Tag {
	tags := make([]Tag, 0, len(r.Slots))
	for i := range r.Slots {
		if slot := r.Slots[(r.First+i)%len(r.Slots)]; t.keys[slot] == nil || t.keys[slot].phase == Starved {
			tags = append(tags, slot)
		}
	}
	return tags
}

// triedAsSlot reports whether a semaphore has the server try the key as one of its slots now: a session would be let in twice, or two be
// asked about one lock. Slots are single keys.
func (t *Table) triedAsSlot(k *Key) bool {
	if k.pool || len(t.pools) == 0 || k.tag.ObjSubID == namespace.PairForm {
		return false
	}
	for _, p := range t.pools {
		if p.phase != Asking && p.phase != Waiting {
			continue
		}
		if slices.Contains(p.tried, k.tag) {
			return true
		}
	}
	return false
}
