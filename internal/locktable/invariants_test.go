package locktable

import "slices"

// invariants demands what must hold in each state, between two events.
func (w *world) invariants() {
	for _, a := range w.actors {
		w.actorInvariants(a)
	}
	used, alive := 0, 0
	for range w.t.conns.all {
		alive++
	}
	for _, l := range w.links {
		if !l.over() {
			used += l.n.locks
			w.linkInvariants(l)
		}
	}
	if alive != w.t.connCount || alive > w.t.limits.MaxConns {
		fail("%d connections are counted, %d are there, and there can be %d", w.t.connCount, alive, w.t.limits.MaxConns)
	}
	if used != w.t.used {
		fail("%d keys are counted, and %d have a connection", w.t.used, used)
	}
	for _, k := range w.t.keys {
		w.keyInvariants(k)
	}
	for _, k := range w.t.pools {
		w.keyInvariants(k)
	}
	for k := range w.t.starved.all {
		if k.phase != Starved {
			fail("%v is in the queue for a connection in phase %d", k.tag, k.phase)
		}
	}
	if t := w.t; !w.closed && t.starved.peek() != nil && (t.room.top() != nil || t.connCount < t.limits.MaxConns) {
		fail("%v waits for a connection, and there is room", t.starved.peek().tag)
	}
	for k := range w.t.polled.all {
		if k.phase != Waiting || k.conn != nil {
			fail("%v is polled in phase %d", k.tag, k.phase)
		}
	}
	if w.t.polling != w.hasTimer(Poll, nil) {
		fail("the timer of the polls and the table disagree")
	}
}

func (w *world) hasTimer(kind Kind, k *Key) bool {
	for i := range w.timers {
		if c := &w.timers[i]; c.Kind == kind && (k == nil || c.Tag == k.tag && c.Pool == k.pool) {
			return true
		}
	}
	return false
}

func (w *world) actorInvariants(a *actor) {
	for i, h := range a.held {
		told := a.told&(1<<i) != 0
		switch h.phase {
		case Active:
			if told {
				fail("actor %d heard of the loss of a lock that it has", a.number)
			}
			w.holderInvariants(h)
			for _, k := range h.on {
				if k.mode != a.script[i].mode {
					fail("actor %d has %v in another mode than it asked for", a.number, k.tag)
				}
			}
		case Lost:
			if !told {
				fail("actor %d has lost a lock and does not know", a.number)
			}
		default:
			fail("actor %d has a holder in phase %d", a.number, h.phase)
		}
	}
	if h := a.holder; h != nil && h.phase == Partial {
		w.holderInvariants(h)
	}
	if r := a.request; r != nil && (r.phase != queued || !r.inQueue.in || r.key == nil || w.t.table(r.key.pool)[r.key.tag] != r.key) {
		fail("the request of actor %d waits in no queue", a.number)
	}
	if a.request != nil && a.holder.phase == Lost {
		fail("actor %d waits for a further key although it has lost one", a.number)
	}
	if w.closed && a.request != nil {
		fail("a request waits although the table is closed")
	}
	if r := a.release; r != nil && r.left != w.operationsBy(r) {
		fail("a release waits for %d answers, and %d are to come", r.left, w.operationsBy(r))
	}
	if r := w.asked; r != nil && r.left != w.operationsBy(r) {
		fail("a ping waits for %d answers, and %d are to come", r.left, w.operationsBy(r))
	}
}

// holderInvariants are for a holder that believes that it has its keys.
func (w *world) holderInvariants(h *Holder) {
	if w.closed && h.phase == Active {
		fail("a lock is held although the table is closed")
	}
	for _, k := range h.on {
		if w.t.keys[k.tag] != k || k.phase != Held || !contains(k.holders, h) {
			fail("a holder believes that it has %v", k.tag)
		}
	}
	if h.phase == Active && len(h.on) == 0 {
		fail("a holder has no key")
	}
}

func contains[T comparable](all []T, one T) bool {
	return slices.Contains(all, one)
}

// operations yields all operations that were asked for and not answered.
func (w *world) operations(yield func(*link, *Op) bool) {
	for _, l := range w.links {
		if l.over() {
			continue
		}
		for _, o := range l.n.pending {
			if !yield(l, o) {
				return
			}
		}
		for _, o := range l.batch {
			if !yield(l, o) {
				return
			}
		}
	}
}

func (w *world) operationsBy(r *Request) (count int) {
	for _, o := range w.operations {
		if o.By == r {
			count++
		}
	}
	return count
}

func (w *world) linkInvariants(l *link) {
	n, locks := l.n, 0
	for k := range n.keys.all {
		if k.conn != n {
			fail("a key is on two connections")
		}
		locks++
	}
	used := l.driving || l.batch != nil || l.attending
	dedicated := w.t.dedicated()
	room := n.alive() && n.waiter == nil && n.phase != Lent && n.locks < w.t.limits.LocksPerConn && (!dedicated || n.phase == Idle)
	switch {
	case locks != n.locks:
		fail("session %d counts %d keys, and has %d", n.number, n.locks, locks)
	case n.waiter != nil && (n.waiter.conn != n || n.waiter.phase != Waiting):
		fail("session %d is waited on for a key of another, or one that does not wait", n.number)
	case (n.waiter != nil) != l.attending:
		fail("session %d has a waiter without a goroutine, or the other way round", n.number)
	case n.phase == Idle && (used || len(n.pending) > 0), n.phase == Busy && !used, (n.phase == Lent) != (w.lent == l) && !l.lost:
		fail("session %d is in phase %d, which is not how it is used", n.number, n.phase)
	case (n.phase == Making || n.phase == Unwanted && !l.gone) != l.dialing:
		fail("session %d is in phase %d, and its dial is not", n.number, n.phase)
	case (n.phase == Ended) != l.lost, l.lost && !l.closing && !used && w.lent != l:
		fail("session %d is lost, and that is not known, or nobody closes it", n.number)
	case n.inRoom.in && !room, room && !n.inRoom.in && n.phase != Making:
		fail("session %d has room, and is not in the list, or the other way round", n.number)
	case !l.lost:
		w.accounted(l)
	}
}

// accounted demands that each lock of a session belongs to a key, or is about to go back.
func (w *world) accounted(l *link) {
	for i := range l.has {
		if !w.hasOwner(l, l.has[i]) {
			fail("session %d has %v, and nobody knows", l.n.number, l.has[i].tag)
		}
	}
}

func (w *world) hasOwner(l *link, has lock) bool {
	for k := range l.n.keys.all {
		if k.tag == has.tag && !k.pool && k.phase == Held {
			return k.mode == has.mode
		}
		if k.hasTurnstile && k.turnstile() == has.tag {
			return k.mode == has.mode
		}
	}
	for at, o := range w.operations {
		if at == l && o.Kind == Unlock && o.Tag == has.tag {
			return o.Mode == has.mode
		}
	}
	return false
}

func (w *world) keyInvariants(k *Key) {
	requests, tries := 0, 0
	for r := range k.requests.all {
		if r.phase != queued || r.key != k {
			fail("a request in the queue of %v is not queued", k.tag)
		}
		if requests++; r.Try {
			tries++
		}
	}
	if requests != k.waiting || tries != k.tries {
		fail("%v counts %d requests and %d tries, and has %d and %d", k.tag, k.waiting, k.tries, requests, tries)
	}
	under, passes := 0, 0
	for l, o := range w.operations {
		switch {
		case o.key != k:
		case o.Kind == Pass:
			passes++
		default:
			if under++; l.n != k.conn {
				fail("%v is asked for on a connection that it is not on", k.tag)
			}
		}
	}
	if want := k.phase == Asking || k.phase == Returning; want && under != 1 || !want && under != 0 {
		fail("%v is in phase %d with %d operations under way", k.tag, k.phase, under)
	}
	if k.hasTurnstile && (k.phase != Waiting || k.conn == nil) {
		fail("%v has its turnstile in phase %d", k.tag, k.phase)
	}
	w.phaseInvariants(k, passes)
}

// phaseInvariants demands that something is under way that will end the phase.
func (w *world) phaseInvariants(k *Key, passes int) {
	switch k.phase {
	case Free:
		fail("%v is free, and is not forgotten", k.tag)
	case Starved:
		if !k.inQueue.in || k.conn != nil {
			fail("%v waits for a connection, and is not in the queue", k.tag)
		}
	case Pausing:
		if !w.hasTimer(Pause, k) || k.conn != nil {
			fail("%v pauses without a timer", k.tag)
		}
	case Waiting:
		if k.inQueue.in == (k.conn != nil && k.conn.waiter == k) {
			fail("%v has no waiter and is not polled, or both", k.tag)
		}
		w.waitingInvariants(k)
	case Held:
		w.heldInvariants(k, passes)
	}
	if k.phase != Held && len(k.holders) > 0 {
		fail("%v has holders in phase %d", k.tag, k.phase)
	}
}

// waitingInvariants demands that nobody waits in vain.
func (w *world) waitingInvariants(k *Key) {
	r := k.requests.peek()
	if r != nil && !r.Try && k.tries > 0 {
		fail("a try of %v waits behind another request", k.tag)
	}
	if k.conn == nil {
		return
	}
	l := k.conn.Carrier.(*link)
	obsolete := r == nil || l.step.Kind == WaitFor && l.step.Mode != r.Mode || len(l.n.pending) > 0 || l.n.yields
	if l.stepping && !l.interrupted && !l.lost && obsolete {
		fail("the step on session %d is obsolete, and is not interrupted", l.n.number)
	}
}

func (w *world) heldInvariants(k *Key, passes int) {
	l := k.conn.Carrier.(*link)
	i := l.find(k.tag)
	switch {
	case len(k.holders) == 0:
		fail("%v is held by nobody", k.tag)
	case len(k.holders) > 1 && k.mode == Exclusive:
		fail("%v has %d holders that exclude each other", k.tag, len(k.holders))
	case l.lost || i < 0 || l.has[i].mode != k.mode:
		fail("%v is held, and session %d has it not in that mode", k.tag, l.n.number)
	case k.gate == gateAsked && passes == 0:
		fail("nobody asks whether the turnstile of %v is open", k.tag)
	case k.tries > 0 && k.gate != gateAsked:
		fail("a try waits for %v, which is held", k.tag)
	case k.gate == gateShut && !w.hasTimer(Reopen, k):
		fail("nobody will look again at the turnstile of %v", k.tag)
	}
	for _, h := range k.holders {
		if h.phase == Released || !contains(h.on, k) { // one that is Lost keeps its other keys until its user is through
			fail("%v has a holder in phase %d", k.tag, h.phase)
		}
	}
	if r := k.requests.peek(); r != nil && (k.gate == gateOpen && !k.conflicts(r.Mode) || k.gate != gateAsked && r.Try) {
		fail("a request for %v waits, and could join or be refused", k.tag)
	}
}
