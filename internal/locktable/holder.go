package locktable

import (
	"errors"
	"slices"

	"github.com/pglatch/pglatch/internal/session"
)

// A Holder is one acquisition of one or several keys, from its first request to its release or loss.
type Holder struct {
	Carrier any     // for the carrier
	Around  *Holder // a holder that the caller already has; nil = none
	SlotOf  Tag     // the semaphore, if it is for a slot

	table   *Table
	phase   HolderPhase
	cause   error                 // why it was lost
	since   Instant               // when it became Active
	on      []*Key                // the keys that it has
	own     *Conn                 // the connection for its further keys, while it is Partial
	pending *Request              // for the next key
	inside  map[*Request]struct{} // see Request.outer
	conns   []*Conn               // of all keys that it used; fixed once it is Active
	slot    Tag

	room     [1]*Key // for the usual single key and connection
	connRoom [1]*Conn
}

// A HolderPhase is the state of a holder.
type HolderPhase uint8

// The phases of a holder.
const (
	Partial  HolderPhase = iota // it has no key yet, or not all
	Active                      // it has all its keys
	Released                    // by its user
	Lost                        // a connection of its keys ended
)

// Hold adds the holder to the table, without a key.
func (t *Table) Hold(h *Holder) {
	h.table = t
	h.on, h.conns = h.room[:0], h.connRoom[:0]
}

// Phase is the state of the holder.
func (h *Holder) Phase() HolderPhase { return h.phase }

// Of reports whether the holder belongs to the table.
func (h *Holder) Of(t *Table) bool { return h.table == t }

// Since is when the holder became Active.
func (h *Holder) Since() Instant { return h.since }

// On returns the keys that it has.
func (h *Holder) On() []*Key { return h.on }

// Conns returns the connections of its keys. They stay the same once it is Active.
func (h *Holder) Conns() []*Conn { return h.conns }

// Slot is the slot that it got, if it is for a semaphore.
func (h *Holder) Slot() Tag { return h.slot }

// Cause is why it was lost.
func (h *Holder) Cause() error { return h.cause }

// Inside yields the requests during which it stays held.
func (h *Holder) Inside(yield func(*Request) bool) {
	for r := range h.inside {
		if !yield(r) {
			return
		}
	}
}

// Complete makes a holder of several keys Active. It returns the cause if a key was lost meanwhile.
func (t *Table) Complete(h *Holder, now Instant) error {
	t.note(EventComplete, now, nil, nil, h)
	defer t.guard()
	if t.broken != nil {
		return t.broken
	}
	if h.phase == Lost {
		return h.lost()
	}
	h.activate(now)
	return nil
}

func (h *Holder) activate(now Instant) { h.phase, h.since, h.own = Active, now, nil }

func (h *Holder) lost() error { return &session.LostError{Cause: h.cause} }

// has returns the holder's key that a request is for. A semaphore and the mutex on its key are different locks.
func (h *Holder) has(r *Request) *Key {
	if r.Holder.SlotOf.Valid() {
		if h.SlotOf == r.Holder.SlotOf {
			return h.on[0]
		}
		return nil
	}
	for _, k := range h.on {
		if k.tag == r.Tag {
			return k
		}
	}
	return nil
}

// blocks records that the holder stays held until the request is settled.
func (h *Holder) blocks(r *Request) {
	if h.inside == nil {
		h.inside = make(map[*Request]struct{})
	}
	h.inside[r] = struct{}{}
}

// Outcome is the result of a Release.
type Outcome uint8

// The outcomes of a Release.
const (
	WasLost   Outcome = iota // it was lost before; the rest of it is released
	Again                    // it was released before; nothing happens
	Over                     // it is released
	Unsettled                // the request will be settled
)

// Stale returns the connections that must be looked at before Release: a lock on them can stay in this process, without a
// question to the server, and they were not recently seen alive.
func (t *Table) Stale(h *Holder, now Instant) (conns []*Conn) {
	if h.phase != Active {
		return nil
	}
	for _, k := range h.on {
		stays := len(k.holders) > 1 || len(h.on) == 1 && k.waiting > 0
		if stays && !k.conn.fresh(now) && !slices.Contains(conns, k.conn) {
			conns = append(conns, k.conn)
		}
	}
	return conns
}

// Unverified returns the connections that must be pinged before Release. A reader that leaves its lock to other readers
// gets no answer from the server, and a look did not find the session alive.
func (t *Table) Unverified(h *Holder, now Instant) (conns []*Conn) {
	if h.phase != Active {
		return nil
	}
	for _, k := range h.on {
		if len(k.holders) > 1 && !k.conn.fresh(now) && !slices.Contains(conns, k.conn) {
			conns = append(conns, k.conn)
		}
	}
	return conns
}

// Joins returns the connection that must be looked at before a reader can join the holders of a key; nil = none.
func (t *Table) Joins(tag Tag, now Instant) *Conn {
	if k := t.keys[tag]; k != nil && k.phase == Held && k.mode == Shared && k.gate == gateOpen && !k.conn.fresh(now) {
		return k.conn
	}
	return nil
}

// Release releases a holder's locks: to the next request of this process, or at the server. r is settled when the
// server has answered. If the holder was lost before, r's Err is the loss.
//
// Over without an Err means that the holder had its locks when it was released: the server said so, or the connections
// had just been Verified.
func (t *Table) Release(h *Holder, r *Request, now Instant) Outcome {
	if !t.begin(EventRelease, now, nil, r, h) {
		return h.released()
	}
	defer t.guard()
	switch h.phase {
	case Released:
		return Again
	case Lost:
		h.giveUp() // the rest on other connections was kept until now
		return WasLost
	}
	h.phase = Released
	if len(h.on) == 1 && h.passes(h.on[0]) {
		h.on = nil
		return Over
	}
	r.table, r.phase = t, queued
	if h.leave(r); r.left == 0 {
		r.phase = settled
		return Over
	}
	return Unsettled
}

// released is Release on a broken table, which has nothing to release.
func (h *Holder) released() Outcome {
	if h.phase == Released {
		return Again
	}
	h.phase = Released
	return WasLost
}

// GiveUp releases a holder's locks without waiting for the server.
func (t *Table) GiveUp(h *Holder, now Instant) {
	if !t.begin(EventGiveUp, now, nil, nil, h) {
		return
	}
	defer t.guard()
	h.giveUp()
}

func (h *Holder) giveUp() {
	h.phase = Released
	h.leave(nil)
}

// leave removes the holder from its keys. r, if not nil, is settled when the server has released the keys without other
// holders.
func (h *Holder) leave(r *Request) {
	keys := h.on
	h.on = nil
	for _, k := range keys {
		if !k.without(h) {
			continue
		}
		if r != nil {
			r.left++
		}
		k.giveBack(r)
	}
}

// passes removes the holder from its only key if the key has other holders, or passes to the next request without the
// server.
func (h *Holder) passes(k *Key) bool {
	if len(k.holders) > 1 {
		k.without(h)
		return true
	}
	if k.waiting == 0 {
		return false
	}
	successor := k.successor()
	if successor == nil || !k.without(h) {
		return false
	}
	k.table.do(Command{Kind: Watch, Conn: k.conn})
	k.give(successor, true)
	return true
}

// without removes a holder from a key, and reports whether it was the last.
func (k *Key) without(h *Holder) bool {
	i := slices.Index(k.holders, h)
	if i < 0 {
		return false // it was lost
	}
	k.holders = slices.Delete(k.holders, i, i+1)
	return len(k.holders) == 0
}

// loses records the loss of the holder, and reports whether its user receives it.
func (h *Holder) loses(cause error) (told bool) {
	if h.phase == Released || h.phase == Lost {
		return false
	}
	told = h.phase == Active
	h.phase, h.cause = Lost, cause
	return told
}

// failPending fails a lost holder's request for a further key.
func (h *Holder) failPending() {
	r := h.pending
	if r == nil || r.phase != queued || !r.inQueue.in {
		return
	}
	k := r.key
	k.leaveQueue(r)
	r.settle(h.lost())
	if k.waiting == 0 {
		k.abandon()
	} else {
		k.interrupt() // the wait may be in the mode of the request that left
	}
	k.advance()
}

// End marks a connection, and everything on it, as lost. The first cause counts.
func (t *Table) End(n *Conn, now Instant, cause error) {
	if t.record != nil {
		t.record(Event{Kind: EventEnd, At: now, Conn: n, Err: cause})
	}
	defer t.guard()
	if t.broken != nil {
		return
	}
	t.now = now
	t.end(n, cause)
}

func (t *Table) end(n *Conn, cause error) {
	if !n.alive() {
		return
	}
	lost, ok := errors.AsType[*session.LostError](cause)
	if !ok {
		lost = &session.LostError{Cause: cause}
	}
	n.lost = lost
	if n.phase == Making { // the attempt to connect ends by itself
		n.phase = Unwanted
		t.place(n)
		return
	}
	used := n.phase != Idle
	n.phase = Ended
	t.place(n)
	keys := n.keys.slice() // a copy: the loss of a lock can start new requests
	var holders []*Holder
	for _, k := range keys {
		for _, h := range k.holders { // of held keys; a request that asks or waits receives the loss as its answer
			if h.loses(lost.Cause) {
				holders = append(holders, h)
			}
		}
	}
	t.do(Command{Kind: Lose, Conn: n, Holders: holders, Cause: lost.Cause})
	var open []*Key
	for _, k := range keys {
		if k.conn != n || k.phase != Held {
			continue
		}
		for _, h := range k.holders {
			h.failPending()
		}
		clear(k.holders)
		k.holders = k.room[:0]
		k.phase = Free
		k.move(nil)
		open = append(open, k)
	}
	pending := n.pending
	n.pending = nil
	for _, o := range pending {
		o.fail(lost)
	}
	for _, k := range open {
		if k.table != nil { // otherwise it is forgotten already
			k.advance()
		}
	}
	if !used {
		t.do(Command{Kind: Close, Conn: n})
	}
}

// Closed records that the session of a lost connection is closed.
func (t *Table) Closed(n *Conn, now Instant) {
	if !t.begin(EventClosed, now, n, nil, nil) {
		return
	}
	defer t.guard()
	t.remove(n)
	t.serve()
}
