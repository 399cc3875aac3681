package locktable

import "time"

// A StepKind is the next action of a goroutine that waits on a connection.
type StepKind uint8

// The kinds of steps.
const (
	Leave     StepKind = iota // the goroutine ends
	DoPending                 // drives the pending operations: Take and Answer
	WaitFor                   // waits for Tag in Mode at the server, until Deadline
	TryAny                    // tries Any; pings if there is none
	Sleep                     // sleeps for Delay, or until Interrupt
)

// A Step is one step of a goroutine that waits on a connection. After WaitFor and TryAny it calls Stepped, after the
// others Next.
type Step struct {
	Kind     StepKind
	Tag      Tag
	Mode     Mode
	Any      []Tag
	Deadline Instant // 0 = none
	Delay    time.Duration
}

// SlotPause is the interval at which a semaphore's one active waiter, among all processes, tries the slots. Half of it
// is random.
const SlotPause = 20 * time.Millisecond

// wait begins a wait for the key. It uses the connection of the try if that carries one lock, or a connection that is
// otherwise idle. Without either, the key is polled.
func (k *Key) wait() {
	t := k.table
	k.phase = Waiting
	if t.dedicated() {
		if k.conn.waiter == nil {
			k.waitOn(k.conn)
		} else {
			k.poll() // two holders of several keys share one of them, and its connection
		}
		return
	}
	if n := t.connToWait(k); n != nil {
		k.waitOn(n)
		return
	}
	k.poll()
}

// waitOn begins to wait for the key on a connection. It takes the connection before the key moves to it: the connection
// that the key leaves may serve other waits.
func (k *Key) waitOn(n *Conn) {
	if n.waiter != nil { // two goroutines would use one session
		panic(BugError{"two waits are given one connection"})
	}
	n.waiter, n.yields = k, false
	if n.phase == Idle {
		n.phase = Busy
	}
	k.table.do(Command{Kind: Attend, Conn: n})
	k.table.place(n)
	k.phase = Waiting
	k.move(n)
}

// Next returns the next step of the goroutine that waits on a connection. With Leave it passes the connection on.
func (t *Table) Next(n *Conn, now Instant) Step {
	if !t.begin(EventNext, now, n, nil, nil) {
		return Step{}
	}
	defer t.guard()
	return t.next(n)
}

func (t *Table) next(n *Conn) Step {
	k := n.waiter
	for {
		if len(n.pending) > 0 && n.phase == Busy {
			return Step{Kind: DoPending}
		}
		r := k.requests.peek()
		switch {
		case n.phase == Unwanted && t.lives(): // the server may have no connection left
			n.waiter = nil
			k.poll()
			return Step{}
		case !n.alive():
			n.waiter = nil
			k.dropped(n.lost)
			t.pass(n)
			return Step{}
		case r == nil || t.closed != nil || r.Try:
			k.stop(n)
			return Step{}
		case n.phase == Making:
			return Step{Kind: Sleep, Delay: pollPause}
		case n.yields && k.outOfTurn(n):
			return Step{}
		case k.hasTurnstile && k.mode != r.Mode:
			k.leaveTurnstile(n)
			continue
		}
		k.mode, n.yields = r.Mode, false // no other key needs the connection any more
		switch {
		case !k.hasTurnstile:
			return Step{Kind: WaitFor, Tag: k.turnstile(), Mode: k.mode, Deadline: r.Deadline}
		case k.pool:
			k.tried = t.freeSlots(r)
			return Step{Kind: TryAny, Any: k.tried}
		}
		return Step{Kind: WaitFor, Tag: k.tag, Mode: k.mode, Deadline: r.Deadline}
	}
}

// Stepped handles the result of a WaitFor or TryAny step. lost is not nil if the session ended. It returns the next
// step, which can be a pause between two tries of slots.
func (t *Table) Stepped(n *Conn, now Instant, reply Reply, lost error) Step {
	if t.record != nil {
		t.record(Event{Kind: EventStepped, At: now, Conn: n, Replies: []Reply{reply}, Err: lost})
	}
	defer t.guard()
	if t.broken != nil {
		return Step{}
	}
	t.now = now
	k := n.waiter
	tried := k.tried
	k.tried = nil
	if lost != nil {
		t.end(n, lost)
	}
	switch came := !k.hasTurnstile; {
	case n.phase == Ended: // perhaps by another goroutine
	case reply.Err != nil:
		if r := k.requests.peek(); r != nil { // the earlier one may have left
			k.refuse(r, reply.Err)
		}
	case came && reply.Held: // it just got the turnstile, and waits for the key next
		k.hasTurnstile = true
	case reply.Held:
		n.waiter = nil
		k.leaveTurnstile(n)
		if k.pool {
			k.grantSlot(tried[reply.Index])
		} else {
			k.grant()
		}
		t.pass(n)
		return Step{}
	case k.outOfTurn(n):
		return Step{}
	case k.pool && !came:
		return Step{Kind: Sleep, Delay: SlotPause}
	}
	return t.next(n)
}

// stop ends the wait for a key that no request waits for any more.
func (k *Key) stop(n *Conn) {
	t := k.table
	n.waiter = nil
	if k.hasTurnstile { // a try on another connection must not find it shut
		k.hasTurnstile, k.phase = false, Returning
		k.op = Op{Kind: Unlock, key: k, Tag: k.turnstile(), Mode: k.mode}
		n.pending = append(n.pending, &k.op)
		t.pass(n)
		return
	}
	if n.phase == Making && len(n.pending) == 0 {
		t.end(n, errGone) // so that no key moves to it meanwhile
		t.do(Command{Kind: Abort, Conn: n})
	}
	k.phase = Free
	k.move(nil)
	t.pass(n)
	k.advance()
}

// leaveTurnstile releases the turnstile.
func (k *Key) leaveTurnstile(n *Conn) {
	k.hasTurnstile = false
	n.pending = append(n.pending, &Op{Kind: Unlock, Tag: k.turnstile(), Mode: k.mode})
}

// interrupt makes the goroutine that waits for the key check again.
func (k *Key) interrupt() {
	if n := k.conn; n != nil && n.waiter == k {
		k.table.do(Command{Kind: Interrupt, Conn: n})
	}
}

// connToWait returns a connection on which to wait for a key, or nil. It never returns the connection for the next key.
func (t *Table) connToWait(k *Key) (best *Conn) {
	next := t.room.top()
	if n := t.unused(next); n != nil {
		return n
	}
	for n := range t.conns.all {
		if n.phase == Idle && n.waiter == nil && n != next && n != k.conn && t.now-n.since >= settledAfter && (best == nil || n.locks < best.locks) {
			best = n
		}
	}
	return best
}

// yield makes a waiter leave its connection to a key without one, if there is such a connection.
func (t *Table) yield() bool {
	if t.dedicated() {
		return false
	}
	for n := range t.conns.all {
		if !n.alive() || n.waiter == nil || n.locks > t.limits.LocksPerConn {
			continue
		}
		if !n.yields {
			n.yields = true
			n.waiter.interrupt()
		}
		return true
	}
	return false
}

// outOfTurn leaves the connection to a key without one, if there is such a key: keys take turns, step by step.
func (k *Key) outOfTurn(n *Conn) bool {
	t := k.table
	if t.dedicated() || t.polled.peek() == nil && (t.starved.peek() == nil || n.locks > t.limits.LocksPerConn) {
		return false
	}
	n.waiter = nil
	if k.hasTurnstile {
		k.leaveTurnstile(n)
	}
	k.poll()
	t.pass(n)
	t.serve()
	return true
}

// poll makes the table try the key from time to time, until a connection to wait on is available.
func (k *Key) poll() {
	t := k.table
	k.phase = Waiting
	k.move(nil)
	t.polled.push(&k.inQueue, k)
	if !t.polling {
		t.polling = true
		t.do(Command{Kind: Poll, Delay: pollPause})
	}
}

// noRoom keeps a polled key that could not be tried. Callers that hold locks fail: the holders of the room may be
// waiting for these locks.
func (k *Key) noRoom(err error) {
	k.refuseNested(err)
	if k.waiting == 0 {
		k.tidy()
		return
	}
	k.phase = Waiting
	k.table.polled.push(&k.inQueue, k)
}

// Polled tries the polled keys, all at the same moments so that they form one batch.
func (t *Table) Polled(now Instant) {
	if !t.begin(EventPolled, now, nil, nil, nil) {
		return
	}
	defer t.guard()
	t.serve()
	if t.polled.peek() == nil || t.closed != nil {
		t.polling = false
		return
	}
	t.round++
	for _, k := range t.polled.slice() {
		r := k.requests.peek()
		every := 1 << min(k.polls, 3)
		if r == nil { // its request withdrew when it was put here
			t.polled.remove(&k.inQueue)
			k.phase = Free
			k.advance()
			continue
		}
		if !k.inQueue.in || t.round%every != 0 {
			continue
		}
		k.polls++
		t.polled.remove(&k.inQueue)
		k.phase = Free
		if err := k.ask(r); err != nil { // no room for its lock now
			k.noRoom(err)
		}
	}
	t.do(Command{Kind: Poll, Delay: pollPause})
}
