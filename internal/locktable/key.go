package locktable

import (
	"cmp"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

// A Key is this process's state of one lock: its holders and waiters here, and the operation at the server.
type Key struct {
	table     *Table
	tag       Tag
	semaphore Tag  // if it is a slot; zero = it is none
	pool      bool // it is a semaphore: requests want any of its slots, and a granted slot becomes a separate key
	phase     Phase
	tried     []Tag  // of a semaphore: the slots in the current try
	slots     int    // size of its semaphore, if it is a slot, as far as its user knows
	handOvers uint32 // since the server granted it

	conn    *Conn     // that the lock lives on, or is requested on; nil = none
	inConn  node[Key] // in conn.keys
	inQueue node[Key] // in Table.starved or polled
	mode    Mode      // of the hold, try or wait
	at      Instant   // when the server granted it
	gate    gate      // of a lock that is held in shared mode
	opened  Instant   // when the turnstile was last found open

	holders  []*Holder // several only if all are shared
	requests list[Request]
	waiting  int // requests
	tries    int // those of them that do not wait
	op       Op  // the operation under way

	gateTag      Tag   // its turnstile
	hasTurnstile bool  // is held on conn, in mode
	loss         error // the last loss of a connection during a request
	losses       int   // since the last grant
	polls        int   // tries while it was polled, or its turnstile was shut

	room [1]*Holder // for the usual single holder
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

// Conn is the connection that it lives on, or is requested on; nil = none.
func (k *Key) Conn() *Conn { return k.conn }

// Mode is the mode in which it is held.
func (k *Key) Mode() Mode { return k.mode }

// Since is when the server granted it.
func (k *Key) Since() Instant { return k.at }

// Slots is the size of its semaphore, if it is a slot.
func (k *Key) Slots() int { return k.slots }

// HandOvers counts how often it was handed to another request without the server.
func (k *Key) HandOvers() uint32 { return k.handOvers }

// Holders returns its holders.
func (k *Key) Holders() []*Holder { return k.holders }

// Waiting is the number of requests in its queue.
func (k *Key) Waiting() int { return k.waiting }

// Requests yields the requests in its queue.
func (k *Key) Requests(yield func(*Request) bool) { k.requests.all(yield) }

// turnstile is the lock that a waiter takes before it waits for the key. It takes the turnstile in the mode in which it
// wants the key, and keeps it until it has the key. A wait at the server goes in steps, and loses its place in the
// server's queue after each. While a waiter has the turnstile, no other waits ahead of it. No new reader gets in
// either, because readers pass the turnstile.
func (k *Key) turnstile() Tag {
	if !k.gateTag.Valid() { // a semaphore uses that of its key
		k.gateTag = turnstile.Of(k.tag)
	}
	return k.gateTag
}

// advance does what is possible for the queued requests after a change.
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

// ask tries the key for the first request: now, or when a connection is available. After an error no operation is under
// way.
//
// A key stays on its connection, and all keys of one holder use one connection. Any other key goes to the last
// connection with room, or to a new one.
func (k *Key) ask(r *Request) error {
	t, n := k.table, k.conn
	if k.phase != Free { // the server would grant a lock again to the session that has it
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
	case r.nested(): // the holders of the connections may be waiting for the caller's locks
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
		if len(k.op.Any) == 0 { // this process has all slots
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

// starve queues the key for a connection.
func (k *Key) starve() {
	k.phase = Starved
	k.table.starved.push(&k.inQueue, k)
}

// refuseNested fails the requests of callers that hold locks, if there is no room for the key.
func (k *Key) refuseNested(err error) {
	for r := range k.requests.all {
		if r.nested() {
			k.refuse(r, err)
		}
	}
}

// move sets the key's connection, nil for none.
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

// conflicts reports whether a lock in this mode conflicts with the locks of this process.
func (k *Key) conflicts(mode Mode) bool {
	return k.phase == Held && (mode == Exclusive || k.mode == Exclusive)
}

// Conflicts reports whether a lock in this mode conflicts with the locks of this process.
func (k *Key) Conflicts(mode Mode) bool { return k.conflicts(mode) }

// denied handles a failed try. reason is the server's; nil = another process holds the lock.
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

// refuseTries fails the requests that do not wait, because another process holds the key.
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

// dropped handles the end of the key's connection before the grant. A server restart ends all idle connections, so
// dropped tries another one. It reports the loss after more losses than there can be connections. Pauses in between
// protect the server from a storm of requests.
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

// pauseLeast is a key's shortest pause. The carrier adds a random part of at most half of it.
const pauseLeast = 50 * time.Millisecond

// pause requests the key again after a while.
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
	if k := t.table(pool)[tag]; k != nil && k.phase == Pausing { // otherwise a semaphore has got it meanwhile
		k.phase = Free
		k.advance()
	}
}

// failAll fails all requests that wait now.
func (k *Key) failAll(err error) {
	for r := range k.requests.all {
		k.refuse(r, err)
	}
	k.abandon()
}

// refuse fails a request with an error.
func (k *Key) refuse(r *Request, err error) {
	k.leaveQueue(r)
	r.settle(err)
}

// abandon ends the operation for a key that no request wants any more, as far as it can be ended.
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

// reason returns why a request for the key had no connection, or no answer; nil = another process holds the lock.
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

// freeSlots returns the slots that this process neither has nor requests. It includes a slot whose mutex waits for the
// semaphore's connection. The list begins at a random slot, so that callers spread.
func (t *Table) freeSlots(r *Request) []Tag {
	tags := make([]Tag, 0, len(r.Slots))
	for i := range r.Slots {
		if slot := r.Slots[(r.First+i)%len(r.Slots)]; t.keys[slot] == nil || t.keys[slot].phase == Starved {
			tags = append(tags, slot)
		}
	}
	return tags
}

// triedAsSlot reports whether a semaphore's current try includes the key as a slot. Otherwise the server would grant
// one lock twice to a session, or receive two requests for one lock. Slots are single keys.
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
