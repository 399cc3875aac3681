package locktable

import "slices"

// A Request is a caller that waits for one key, or for the server to release some.
type Request struct {
	Carrier any // for the carrier

	Tag      Tag
	Mode     Mode
	Slots    []Tag   // any one of which will do; nil = the request is for the key itself
	First    int     // index of the slot to try first
	Gate     Tag     // the semaphore's turnstile
	Deadline Instant // for the server; 0 = none
	Try      bool    // one attempt, no wait
	Part     bool    // its holder needs further keys
	Abroad   bool    // its caller holds locks of other tables
	Holder   *Holder // gets the lock

	table   *Table
	key     *Key
	phase   requestPhase
	inQueue node[Request]
	outer   []*Holder // they stay held until it is settled: its caller holds them, or they will be complete with it
	err     error
	told    bool // the Wait command was issued
	left    int  // answers until it is settled
}

type requestPhase uint8

const (
	fresh requestPhase = iota
	queued
	settled
	passed // settled: it got the lock from another request of this process
)

// Err is the result of a settled request; nil = it got the lock, or the answers that it waited for.
func (r *Request) Err() error { return r.err }

// Settled reports whether the request is settled.
func (r *Request) Settled() bool { return r.phase >= settled }

// HandOver reports whether it got the lock from another request of this process.
func (r *Request) HandOver() bool { return r.phase == passed }

// Outer returns the holders of this table that stay held until it is settled.
func (r *Request) Outer() []*Holder { return r.outer }

// Key is the key that it waits for; nil = none.
func (r *Request) Key() *Key { return r.key }

// Reset makes the request unused again; the table must not know it any more.
func (r *Request) Reset() {
	carrier, outer := r.Carrier, r.outer
	clear(outer)
	*r = Request{}
	r.Carrier, r.outer = carrier, outer[:0]
}

// nested reports whether the caller holds locks.
func (r *Request) nested() bool { return len(r.outer) > 0 }

// Enter adds a request to the queue of its key, and does what is possible at once. After an error it is not in the
// queue. The error is that of Close, ErrTaken, ErrNoConn, a *ReentrantError, a *DeadlockError, or the loss of its
// holder's keys.
func (t *Table) Enter(r *Request, now Instant) error {
	if !t.begin(EventEnter, now, nil, r, nil) {
		return t.broken
	}
	defer t.guard()
	if t.closed != nil {
		return t.closed
	}
	if err := t.reentrant(r); err != nil {
		return err
	}
	if r.Holder.phase == Lost {
		return r.Holder.lost()
	}
	k := t.key(r.Tag, r.Slots != nil)
	r.table, r.key = t, k
	if k.pool {
		k.gateTag = r.Gate
	}
	mustWait := k.waiting > 0 || k.conflicts(r.Mode) || k.phase == Waiting
	var err error
	switch {
	case r.Try && (k.conflicts(r.Mode) || k.waiting > 0 && k.phase != Starved && k.phase != Pausing):
		err = ErrTaken
	case mustWait && r.nested() && k.phase == Starved && !t.yield():
		err = ErrNoConn // it would wait behind a request that waits for a connection
	case mustWait:
		err = t.deadlock(r)
	}
	if err != nil {
		r.key = nil
		k.tidy()
		return err
	}
	for _, h := range r.outer {
		h.blocks(r)
	}
	if r.Part {
		r.Holder.pending = r
	}
	r.phase = queued
	k.requests.push(&r.inQueue, r)
	k.waiting++
	if r.Try {
		k.tries++
	}
	if mustWait && !r.Try {
		r.waits(k.waiting - 1)
		r.suspect()
	}
	k.advance()
	if mustWait && k.phase == Waiting && k.waiting == 1 {
		k.interrupt() // the goroutine that waited for the key is about to stop
	}
	return nil
}

// Withdraw removes an unsettled request from its queue. reason is why it had no connection or no answer; nil = the lock
// is held.
func (t *Table) Withdraw(r *Request, now Instant) (reason error) {
	if !t.begin(EventWithdraw, now, nil, r, nil) {
		return t.broken
	}
	defer t.guard()
	if r.phase != queued {
		return nil
	}
	if r.key == nil { // it waits only for answers
		r.phase = settled
		return nil
	}
	k := r.key
	reason = k.reason()
	first := k.requests.peek() == r
	k.leaveQueue(r)
	r.phase = settled
	r.done()
	switch next := k.requests.peek(); {
	case next == nil:
		k.abandon()
	case first && k.phase == Waiting:
		k.interrupt() // the wait may be in the mode of the request that left
	}
	k.advance()
	return reason
}

// Asked is the connection on which the server is asked for the request's key, on its behalf; nil = none.
func (r *Request) Asked() *Conn {
	k := r.key
	if r.phase != queued || k == nil || k.phase != Asking || k.requests.peek() != r || !k.conn.sent(&k.op) {
		return nil
	}
	return k.conn
}

// leaveQueue removes a request from the key's queue.
func (k *Key) leaveQueue(r *Request) {
	if k.requests.remove(&r.inQueue) {
		k.waiting--
		if r.Try {
			k.tries--
		}
	}
}

// waits reports to the carrier, once, that the request waits.
func (r *Request) waits(ahead int) {
	if !r.told {
		r.told = true
		r.key.table.do(Command{Kind: Wait, Request: r, Ahead: ahead})
	}
}

// suspect makes the carrier check whether the wait closes a cycle through other tables.
func (r *Request) suspect() {
	if !r.Try && r.Slots == nil && (r.nested() || r.Abroad) {
		r.key.table.do(Command{Kind: Suspect, Request: r})
	}
}

// answered counts an operation that was answered, or whose connection was lost.
func (r *Request) answered(err error) {
	if err != nil && r.err == nil {
		r.err = err
	}
	if r.left--; r.left == 0 {
		r.settle(r.err)
	}
}

// settle ends the request, once.
func (r *Request) settle(err error) {
	if r.Settled() {
		return
	}
	r.phase, r.err = settled, err
	r.done()
	r.table.do(Command{Kind: Settle, Request: r})
}

// done removes all references to the request except in its queue.
func (r *Request) done() {
	for _, h := range r.outer {
		delete(h.inside, r)
	}
	if r.Holder != nil && r.Holder.pending == r {
		r.Holder.pending = nil
	}
	if r.key != nil && r.key.op.By == r {
		r.key.op.By = nil
	}
}

// reentrant refuses a key that the caller holds. It records the caller's holders.
func (t *Table) reentrant(r *Request) error {
	for h := r.Holder.Around; h != nil; h = h.Around {
		if h.table != t || h.phase != Active {
			continue
		}
		if k := h.has(r); k != nil {
			return &ReentrantError{Holder: h, Tag: k.tag}
		}
		r.outer = append(r.outer, h)
	}
	if len(r.Holder.on) > 0 { // it will be complete with this request
		r.outer = append(r.outer, r.Holder)
	}
	return nil
}

// deadlock refuses a wait that would close a cycle: the holder of the wanted key waits for another key, and so on, up
// to a key that this caller holds. It sees the holders that requests name. A grant goes to the first in the queue,
// which then no longer waits. Every cycle is therefore closed by a request that begins to wait, and is detected here.
func (t *Table) deadlock(r *Request) error {
	if !r.nested() {
		return nil // no request waits for it
	}
	type step struct {
		request *Request
		from    int // index of the previous step; -1 = the request that begins to wait
	}
	steps := []step{{r, -1}}
	seen := map[*Request]bool{r: true}
	for i := 0; i < len(steps); i++ {
		for _, h := range steps[i].request.Blockers() {
			if slices.Contains(r.outer, h) {
				var cycle []*Request
				for j := i; j >= 0; j = steps[j].from {
					cycle = append(cycle, steps[j].request)
				}
				slices.Reverse(cycle)
				return &DeadlockError{Cycle: cycle}
			}
			for w := range h.inside {
				if !seen[w] {
					seen[w] = true
					steps = append(steps, step{w, i})
				}
			}
		}
	}
	return nil
}

// Blockers returns the holders of this process that a request waits for: those that conflict with its mode, or with the
// mode of a request ahead of it, because the queue allows no overtaking. A request with a try under way has none,
// because the queue sends a try only while nothing here conflicts with it. A request that is not queued yet counts as
// the last.
func (r *Request) Blockers() []*Holder {
	k := r.key
	if k == nil {
		return nil
	}
	exclusive := r.Mode == Exclusive || k.mode == Exclusive
	for a := range k.requests.all {
		if exclusive || a == r {
			break
		}
		exclusive = a.Mode == Exclusive
	}
	if k.phase == Held && exclusive {
		return k.holders
	}
	return nil
}
