package locktable

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

// A scenario is a small table and the callers that use it.
type scenario struct {
	conns    int
	perConn  int
	actors   [][]acquisition // each actor takes its locks one inside the other, then releases the last one first
	losses   int             // how many connections can be lost, or fail to be made
	withdraw bool            // a request can be withdrawn
	refuse   bool            // the server can answer a try with an error
	closes   bool            // the table can be closed at any time
	aged     bool            // time passes between events, so that an earlier look at a session is too old
	borrowed int             // how often the carrier borrows a connection
	prompt   bool            // the carrier reacts at once: see carrierEvents
	maxLocks int
}

// An acquisition is one Acquire of an actor.
type acquisition struct {
	keys  []int // one holder gets all of them
	mode  Mode
	try   bool
	slots int // size of the semaphore on keys[0]; 0 = the lock is a mutex
}

// semaphoreKey is the key of the semaphore. Its slots have the keys -1, -2, and so on.
const semaphoreKey = 5

func tagOf(key int) Tag {
	if key < 0 {
		return slotTag(-key - 1)
	}
	return Tag{ObjID: uint32(key + 1), ObjSubID: namespace.SingleForm}
}

func slotTag(slot int) Tag {
	return Tag{ClassID: 1, ObjID: uint32(slot + 1), ObjSubID: namespace.SingleForm}
}

var semaphoreGate = Tag{ClassID: 2, ObjID: 1, ObjSubID: namespace.SingleForm}

// A world is a table, its carrier, the server and the callers, without a goroutine.
type world struct {
	scenario
	t       *Table
	now     Instant
	actors  []*actor
	links   []*link
	timers  []Command
	lost    int
	closed  bool
	lent    *link    // the borrowed connection
	asked   *Request // a ping of the borrower
	borrows int      // left
	trace   []event  // of finish
	locks   []Tag    // names of the locks, by number: see lockNumber
	replies []Reply  // of the batch that is being answered
}

// An actor is a caller with its requests and holders.
type actor struct {
	number  int
	script  []acquisition
	held    []*Holder
	told    uint8 // bit i = the caller knows that held[i] is lost
	at      int   // index of the next acquisition
	part    int   // index of its next key
	holder  *Holder
	request *Request
	release *Request
	ending  bool // it takes no further locks
}

// A link is a connection with its session at the server.
type link struct {
	n           *Conn
	number      int // in the list of the living, set by the printer
	dialing     bool
	driving     bool
	attending   bool
	stepping    bool    // step is under way
	interrupted bool    // that step is to end
	seen        Instant // the last look at the session
	lost        bool
	closing     bool
	gone        bool // it has no session any more, though perhaps still a goroutine
	batch       []*Op
	step        Step
	has         []lock
}

// A lock is one that a session has at the server.
type lock struct {
	tag  Tag
	mode Mode
}

type violation string

func fail(format string, args ...any) { panic(violation(fmt.Sprintf(format, args...))) }

func newWorld(s scenario) *world {
	w := &world{scenario: s, now: 1e9, borrows: s.borrowed}
	w.t = New(Limits{MaxConns: s.conns, LocksPerConn: s.perConn, HandOverBudget: 1e7})
	w.t.SetCapacity(s.maxLocks, 0)
	for i, script := range s.actors {
		w.actors = append(w.actors, &actor{number: i, script: script})
		for _, q := range script {
			w.name(q)
		}
	}
	return w
}

// name numbers the locks of an acquisition: a key's turnstile follows the key.
func (w *world) name(q acquisition) {
	add := func(tag Tag) {
		if !slices.Contains(w.locks, tag) {
			w.locks = append(w.locks, tag, turnstile.Of(tag))
		}
	}
	for _, key := range q.keys {
		add(tagOf(key))
	}
	for i := range q.slots {
		add(slotTag(i))
	}
	if q.slots > 0 && !slices.Contains(w.locks, semaphoreGate) {
		w.locks = append(w.locks, semaphoreGate, Tag{})
	}
}

// link returns the link of a connection. It reuses the place of one that is gone.
func (w *world) link(n *Conn) *link {
	if n.Carrier != nil {
		return n.Carrier.(*link)
	}
	l := &link{n: n}
	n.Carrier = l
	for i, o := range w.links {
		if o.over() {
			w.links[i] = l
			return l
		}
	}
	w.links = append(w.links, l)
	return l
}

// over reports whether nothing more happens on the connection.
func (l *link) over() bool { return l.gone && !l.attending }

func (l *link) find(tag Tag) int {
	for i := range l.has {
		if l.has[i].tag == tag {
			return i
		}
	}
	return -1
}

// free reports whether the server can grant a lock to a session: no other session of this process has it.
func (w *world) free(to *link, tag Tag, mode Mode) bool {
	for _, l := range w.links {
		if l == to || l.gone {
			continue
		}
		if i := l.find(tag); i >= 0 && (mode == Exclusive || l.has[i].mode == Exclusive) {
			return false
		}
	}
	return true
}

var (
	errRefused = errors.New("refused")
	errLost    = errors.New("lost")
	errClosed  = errors.New("closed")
	errUnmade  = errors.New("unmade")
)

// outcomes appends the replies that the server can give to an operation. The first is that of a server that nobody else uses.
func (w *world) outcomes(replies []Reply, l *link, o *Op) []Reply {
	if o.Kind == Unlock || o.Kind == Ping {
		return append(replies, Reply{})
	}
	open := !o.Turnstile.Valid() || w.free(l, o.Turnstile, Shared)
	switch {
	case o.Kind == Pass:
		if open {
			replies = append(replies, Reply{Held: true})
		}
		return append(replies, Reply{})
	case o.Any != nil && open:
		for i, tag := range o.Any {
			if w.free(l, tag, Exclusive) {
				replies = append(replies, Reply{Held: true, Index: i})
			}
		}
	case o.Any == nil && open && w.free(l, o.Tag, o.Mode):
		replies = append(replies, Reply{Held: true})
	}
	replies = append(replies, Reply{})
	if w.refuse {
		replies = append(replies, Reply{Err: errRefused})
	}
	return replies
}

// stepOutcomes appends the replies to the step of a goroutine that waits.
func (w *world) stepOutcomes(replies []Reply, l *link) []Reply {
	if l.step.Kind == TryAny && len(l.step.Any) == 0 || l.step.Kind == Sleep {
		return append(replies, Reply{})
	}
	return w.outcomes(replies, l, &Op{Tag: l.step.Tag, Mode: l.step.Mode, Any: l.step.Any})
}

// take notes that a session has a lock.
func (l *link) take(tag Tag, mode Mode) {
	if l.find(tag) >= 0 {
		fail("session %d is granted %v again", l.n.number, tag)
	}
	l.has = append(l.has, lock{tag, mode})
}

// check demands that a session can be asked for an operation.
func (l *link) check(o *Op) {
	switch {
	case o.Kind == Unlock && l.find(o.Tag) < 0:
		fail("session %d is to give back %v, which it has not", l.n.number, o.Tag)
	case o.Kind == Try && o.Any == nil && l.find(o.Tag) >= 0:
		fail("session %d is asked for %v, which it has", l.n.number, o.Tag)
	case o.Kind == Try:
		for _, tag := range o.Any {
			if l.find(tag) >= 0 {
				fail("session %d is asked for slot %v, which it has", l.n.number, tag)
			}
		}
	}
}

// effect is what an operation does at the server.
func (l *link) effect(o *Op, r Reply) {
	switch {
	case o.Kind == Unlock:
		i := l.find(o.Tag)
		if i < 0 {
			fail("session %d gives back %v, which it has not", l.n.number, o.Tag)
		}
		l.has = slices.Delete(l.has, i, i+1)
	case o.Kind == Try && r.Held && o.Any != nil:
		l.take(o.Any[r.Index], Exclusive)
	case o.Kind == Try && r.Held:
		l.take(o.Tag, o.Mode)
	}
}

// begin starts the next step of a goroutine that waits.
func (l *link) begin(s Step) {
	l.step, l.stepping, l.interrupted = s, false, false
	switch s.Kind {
	case Leave:
		l.attending = false
	case DoPending:
		l.driving = true
	case WaitFor, TryAny:
		l.check(&Op{Kind: Try, Tag: s.Tag, Any: s.Any})
		l.stepping = true
	}
}

// carry does what the table commands.
func (w *world) carry() {
	for commands := w.t.Commands(); len(commands) > 0; commands = w.t.Commands() {
		w.t.commands = nil // a command can cause an event, which has commands
		for _, c := range commands {
			w.carryOne(c)
		}
		if len(w.t.commands) == 0 {
			w.t.commands = commands[:0]
		}
	}
	if len(w.timers) > 1 {
		slices.SortFunc(w.timers, func(a, b Command) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.Tag.Compare(b.Tag))
		})
	}
}

func (w *world) carryOne(c Command) {
	switch c.Kind {
	case Dial:
		w.link(c.Conn).dialing = true
	case Drive, Attend:
		l := w.link(c.Conn)
		if l.driving || l.batch != nil || l.attending || w.lent == l {
			fail("two use session %d", c.Conn.number)
		}
		l.driving, l.attending, l.stepping = c.Kind == Drive, c.Kind == Attend, false
	case Lose:
		w.lose(c)
	case Close:
		l := w.link(c.Conn)
		if l.closing || l.gone || !l.lost {
			fail("session %d is closed twice, or was not lost", c.Conn.number)
		}
		if l.driving || l.batch != nil || l.attending || w.lent == l {
			fail("session %d is closed while it is used", c.Conn.number)
		}
		l.closing = true
	case Break:
		fail("%v", c.Cause)
	case Settle:
		w.settled(c.Request)
	case Pause, Reopen, Poll:
		if w.timers = append(w.timers, c); len(w.timers) > 12 {
			fail("timers pile up")
		}
	case Interrupt, Wake:
		w.link(c.Conn).interrupted = true
	}
}

// lose tells the holders of a lost connection.
func (w *world) lose(c Command) {
	l := w.link(c.Conn)
	if l.lost {
		fail("session %d is lost twice", c.Conn.number)
	}
	l.lost = true
	for _, h := range c.Holders {
		a := h.Carrier.(*actor)
		i := slices.Index(a.held, h)
		if i < 0 || a.told&(1<<i) != 0 {
			fail("actor %d hears of the loss of a lock that it has not, or hears it twice", a.number)
		}
		a.told |= 1 << i
	}
}

func (w *world) settled(r *Request) {
	if !r.Settled() {
		fail("the settled request is not settled")
	}
	a, _ := r.Carrier.(*actor)
	switch {
	case a != nil && r == a.request:
		if r.Err() == nil && r.HandOver() {
			w.handedOver(r)
		}
		w.ended(a, r.Err())
	case a != nil && r == a.release:
		if w.operationsBy(r) > 0 {
			fail("a release is over before the server has everything back")
		}
		a.release = nil
	case r == w.asked:
		w.asked = nil
	default:
		fail("a request is settled that nobody waits for")
	}
}

// handedOver demands that a lock may pass on without the server.
func (w *world) handedOver(r *Request) {
	k := r.key
	if k.gate != gateOpen {
		fail("a reader joins past a writer of another process")
	}
	if k.mode == Exclusive && w.t.now-k.conn.Carrier.(*link).seen > session.VerifiedFor {
		fail("%v passes on although nobody has seen that its session lives", k.tag)
	}
}

// acquire begins the next request of an actor, or ends its acquisition.
func (w *world) acquire(a *actor) {
	q := &a.script[a.at]
	if a.part == len(q.keys) {
		w.complete(a)
		return
	}
	if a.part == 0 {
		a.holder = &Holder{Carrier: a}
		if len(a.held) > 0 {
			a.holder.Around = a.held[len(a.held)-1]
		}
		w.t.Hold(a.holder)
	}
	r := &Request{Carrier: a, Tag: tagOf(q.keys[a.part]), Mode: q.mode, Try: q.try, Part: len(q.keys) > 1, Holder: a.holder}
	if q.slots > 0 {
		a.holder.SlotOf, r.Gate = r.Tag, semaphoreGate
		for i := range q.slots {
			r.Slots = append(r.Slots, slotTag(i))
		}
	}
	a.request = r
	if err := w.t.Enter(r, w.now); err != nil {
		w.ended(a, err)
	}
}

// ended is for a request that is over.
func (w *world) ended(a *actor, err error) {
	a.request = nil
	switch {
	case err != nil:
		w.giveUp(a)
	case len(a.script[a.at].keys) > 1:
		a.part++
	default:
		a.gets()
	}
}

// giveUp ends an acquisition that failed.
func (w *world) giveUp(a *actor) {
	h := a.holder
	a.holder, a.ending = nil, true
	if len(h.on) > 0 || a.part > 0 {
		w.t.GiveUp(h, w.now)
	}
}

// complete ends an acquisition of several keys, when all requests were served.
func (w *world) complete(a *actor) {
	if w.t.Complete(a.holder, w.now) != nil {
		w.giveUp(a)
		return
	}
	a.gets()
}

// gets makes the holder one that the actor has.
func (a *actor) gets() {
	a.held = append(a.held, a.holder)
	a.holder, a.part = nil, 0
	a.at++
	a.ending = a.at == len(a.script)
}

// release releases the actor's last lock. If it is not seen, the look at the sessions was too long ago.
func (w *world) release(a *actor, seen bool) {
	a.ending = true
	last := len(a.held) - 1
	h := a.held[last]
	a.held, a.told = a.held[:last], a.told&^(1<<last)
	for _, n := range h.conns {
		if n.hasSession() && (seen || slices.Contains(w.t.Unverified(h, w.now), n)) {
			w.t.Verified(n, w.now)
			n.Carrier.(*link).seen = w.now
		}
	}
	now := w.now
	if !seen {
		now += 5e6 // less than the budget of the hand-overs
	}
	a.release = &Request{Carrier: a}
	if w.t.Release(h, a.release, now) != Unsettled {
		a.release = nil
	}
}

// borrow borrows a connection, or pings on one that is still being made.
func (w *world) borrow() {
	w.borrows--
	switch n := w.t.Borrow(w.now); {
	case n == nil:
	case n.phase == Lent:
		l := w.link(n)
		if l.driving || l.batch != nil || l.attending {
			fail("session %d is lent while it is used", n.number)
		}
		w.lent = l
	default:
		w.asked = new(Request)
		w.t.Ping(n, w.asked, w.now)
	}
}

// done reports whether the actor has nothing left to do.
func (a *actor) done() bool {
	return a.request == nil && a.release == nil && len(a.held) == 0 && a.ending
}

// begun reports whether the actor has made a request.
func (a *actor) begun() bool { return a.holder != nil || a.at > 0 || a.ending }
