package locktable

import (
	"slices"
	"time"
)

// grant gives the lock, which the server has just granted, to the first request and to readers directly behind it. If
// no request wants it any more, at least not in this mode, grant releases it.
func (k *Key) grant() {
	k.phase, k.at, k.opened, k.gate = Held, k.table.now, k.table.now, gateOpen
	k.handOvers = 0
	k.losses, k.loss, k.polls = 0, nil, 0
	k.conn.since = k.table.now
	r := k.requests.peek()
	if r == nil || r.Mode != k.mode || k.table.closed != nil {
		k.giveBack(nil)
		return
	}
	k.give(r, false)
	k.advance()
	if k.phase == Held {
		k.refuseTries()
	}
}

// give adds the request's holder to the key.
func (k *Key) give(r *Request, handOver bool) {
	h := r.Holder
	k.leaveQueue(r)
	k.holders = append(k.holders, h)
	h.add(k)
	switch {
	case !r.Part:
		h.activate(k.table.now)
	case !handOver: // the wait may have been on another connection than the try
		h.own = k.conn
	}
	r.settle(nil)
	if handOver {
		k.handOvers++
		r.phase = passed
	}
}

// add adds the holder to a key.
func (h *Holder) add(k *Key) {
	h.on = append(h.on, k)
	if slices.Contains(h.conns, k.conn) {
		return
	}
	h.conns = append(h.conns, k.conn)
}

// successor returns the request that may get an exclusive lock when its holder leaves. There is none while the
// connection is in doubt or may have ended. There is none beyond the budget either, so that other processes get their
// turn.
func (k *Key) successor() *Request {
	t, r := k.table, k.requests.peek()
	if r == nil || k.mode != Exclusive || r.Mode != Exclusive || r.Part ||
		k.conn.locks > t.limits.LocksPerConn || t.now-k.at >= t.limits.HandOverBudget || !k.conn.fresh(t.now) {
		return nil
	}
	return r
}

// giveBack releases the lock at the server. by waits for the answer; nil = no request does.
func (k *Key) giveBack(by *Request) {
	if k.phase != Held {
		panic(BugError{"a lock is given back that is not held"})
	}
	k.phase = Returning
	k.holders = k.room[:0]
	k.op = Op{Kind: Unlock, key: k, By: by, Tag: k.tag, Mode: k.mode}
	k.conn.push(&k.op)
}

// returned handles the answer to an unlock.
func (k *Key) returned(lost error) {
	if r := k.op.By; r != nil {
		k.op.By = nil
		defer r.answered(lost)
	}
	k.phase = Free
	t := k.table
	if p := t.pools[k.semaphore]; p != nil && p.phase == Waiting {
		if n := p.conn; n != nil && n.waiter == p { // it need not wait for its next check
			t.do(Command{Kind: Wake, Conn: n})
		}
	}
	if lost != nil || t.starved.peek() != nil || k.conn.waiter != nil || k.conn.locks > t.limits.LocksPerConn {
		k.move(nil) // otherwise the next request continues with the same connection
	}
	k.advance()
}

// grantSlot is grant for a semaphore: from now on the slot is a separate key.
func (k *Key) grantSlot(tag Tag) {
	t, n := k.table, k.conn
	slot := t.key(tag, false)
	switch slot.phase {
	case Free, Pausing: // see triedAsSlot
	case Starved:
		t.starved.remove(&slot.inQueue)
	default:
		panic(BugError{"a slot was granted that this process has"})
	}
	slot.mode, slot.phase, slot.at, slot.semaphore = Exclusive, Held, t.now, k.tag
	slot.move(n)
	n.since = t.now
	k.phase, k.losses, k.loss, k.polls, k.tried = Free, 0, nil, 0, nil
	k.move(nil)
	r := k.requests.peek()
	wanted := false
	if r != nil && t.closed == nil {
		for _, s := range r.Slots {
			wanted = wanted || s == tag
		}
	}
	if !wanted {
		slot.giveBack(nil)
	} else {
		r.Holder.slot = tag
		slot.slots = len(r.Slots)
		k.leaveQueue(r)
		slot.give(r, false)
		slot.advance() // requests for it may have arrived meanwhile
		slot.refuseTries()
	}
	k.advance()
}

// A gate is the known state of the turnstile of a lock that is held in shared mode.
type gate uint8

const (
	gateOpen  gate = iota // open at the last check
	gateAsked             // the server is asked
	gateShut              // a writer waits: no reader may join
)

// join lets the first request, a reader, share the lock that this process holds in shared mode. A process that kept its
// lock for a stream of new readers would starve a writer elsewhere. join therefore asks the server from time to time
// whether a writer waits. false = not now.
func (k *Key) join(r *Request) bool {
	t := k.table
	switch {
	case k.gate == gateShut && r.Try:
		k.refuse(r, ErrTaken)
		return true
	case k.gate != gateOpen:
		return false
	case t.now-k.opened < t.limits.HandOverBudget && k.conn.fresh(t.now):
		t.do(Command{Kind: Watch, Conn: k.conn})
		k.give(r, true)
		return true
	}
	k.gate = gateAsked
	k.conn.push(&Op{Kind: Pass, key: k, Tag: k.tag, Turnstile: k.turnstile()})
	return false
}

// passed handles the answer whether the turnstile is open.
func (k *Key) passed(open bool) {
	if k.phase != Held || k.gate != gateAsked { // it was granted anew meanwhile
		return
	}
	if open {
		k.gate, k.polls = gateOpen, 0
	} else {
		k.gate = gateShut
		k.reopen()
	}
	k.opened = k.table.now
	for r := k.requests.peek(); open && r != nil && r.Mode == Shared; r = k.requests.peek() {
		k.give(r, true) // even with a budget of zero
	}
	k.advance()
}

// pollPause is the first interval between tries of a polled key. It grows to 8 times as long.
const pollPause = 50 * time.Millisecond

// reopen schedules another question to the server, for readers that wait then: the writer that had the turnstile may
// have given up, and nothing reports that.
func (k *Key) reopen() {
	k.table.do(Command{Kind: Reopen, Tag: k.tag, Delay: pollPause << min(k.polls, 3)})
	k.polls++
}

// Reopened lets readers ask for the turnstile again.
func (t *Table) Reopened(now Instant, tag Tag) {
	if t.record != nil {
		t.record(Event{Kind: EventReopened, At: now, Tag: tag})
	}
	defer t.guard()
	if t.broken != nil {
		return
	}
	t.now = now
	if k := t.keys[tag]; k != nil && k.phase == Held && k.gate == gateShut {
		k.gate, k.opened = gateOpen, -t.limits.HandOverBudget
		k.advance()
	}
}
