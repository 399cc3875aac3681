package locktable

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// An event is one thing that can happen in a world.
type event struct {
	kind   eventKind
	who    uint8 // the link, actor or timer
	choice uint16
}

type eventKind uint8

const (
	acquires eventKind = iota
	withdraws
	releases
	releasesUnseen
	takes
	answers
	answerLost
	looks
	steps
	stepLost
	connects
	unmakes
	closesConn
	ends
	rests
	ticks
	closesTable
	borrowing
	returns
	returnLost
)

var eventNames = [...]string{
	"acquire", "withdraw", "release", "release unseen", "take", "answer", "answer lost", "next", "step", "step lost", "connected", "unmade", "closed", "end",
	"rested", "timer", "close", "borrow", "return", "return lost",
}

func (e event) String() string {
	return fmt.Sprintf("%s of %d, choice %d", eventNames[e.kind], e.who, e.choice)
}

// A lister collects events.
type lister struct {
	all []event
	who uint8
}

func (s *lister) add(kind eventKind) { s.all = append(s.all, event{kind: kind, who: s.who}) }

func (s *lister) choices(kind eventKind, count int) {
	for i := range count {
		s.all = append(s.all, event{kind, s.who, uint16(i)})
	}
}

// events appends what can happen now.
func (w *world) events(to []event) []event {
	s := lister{all: to}
	for i, l := range w.links {
		s.who = uint8(i)
		if !l.over() && w.carrierEvents(&s, l) {
			return append(to, s.all[len(s.all)-1])
		}
	}
	for i := range w.timers {
		s.who = uint8(i)
		if w.timers[i].Kind == Poll {
			s.choices(ticks, 2)
		} else {
			s.add(ticks)
		}
	}
	for i, a := range w.actors {
		s.who = uint8(i)
		w.callerEvents(&s, a)
	}
	s.who = 0
	if w.closes && !w.closed {
		s.add(closesTable)
	}
	if w.borrows > 0 && w.lent == nil && w.asked == nil {
		s.add(borrowing)
	}
	return s.all
}

// carrierEvents lists what the carrier and the server can do on a connection. It reports whether the last event is to happen before all others.
//
// In a prompt world the carrier takes a batch, asks for the next step and closes a lost session at once. The orders that this leaves out are those
// in which another event comes between a command and the carrier's first reaction to it. Smaller worlds have them.
func (w *world) carrierEvents(s *lister, l *link) (first bool) {
	mayLose := w.lost < w.losses
	switch {
	case l.batch != nil:
		s.choices(answers, w.answerCount(l))
		if mayLose {
			s.add(answerLost)
		}
	case l.driving:
		s.add(takes)
		first = w.prompt
	case l.stepping:
		var room [8]Reply
		s.choices(steps, len(w.stepOutcomes(room[:0], l)))
		if mayLose {
			s.add(stepLost)
		}
	case l.attending:
		s.add(looks)
		first = w.prompt && l.step.Kind != Sleep
	case w.lent == l:
		s.add(returns)
		if mayLose {
			s.add(returnLost)
		}
	case l.closing:
		s.add(closesConn)
		first = w.prompt
	case l.n.phase == Idle:
		s.add(rests)
	}
	if first {
		return true
	}
	if l.dialing {
		if !w.closed {
			s.add(connects)
		}
		if mayLose || w.closed || l.n.phase == Unwanted {
			s.add(unmakes)
		}
	}
	if mayLose && l.n.hasSession() {
		s.add(ends)
	}
	return false
}

func (w *world) callerEvents(s *lister, a *actor) {
	switch {
	case a.request != nil:
		if w.withdraw {
			s.add(withdraws)
		}
	case a.release != nil:
	case !a.ending:
		s.add(acquires)
	case len(a.held) > 0:
		s.add(releases)
		s.add(releasesUnseen)
	}
}

// answerCount is the number of combinations of replies to the batch.
func (w *world) answerCount(l *link) int {
	count := 1
	var room [8]Reply
	for _, o := range l.batch {
		count *= len(w.outcomes(room[:0], l, o))
	}
	return count
}

// choose sets the replies to the batch to the combination with this number.
func (w *world) choose(l *link, choice int) {
	w.replies = w.replies[:0]
	var room [8]Reply
	for _, o := range l.batch {
		outcomes := w.outcomes(room[:0], l, o)
		w.replies = append(w.replies, outcomes[choice%len(outcomes)])
		choice /= len(outcomes)
	}
}

// fairly reports whether an event happens, in the end, in a world in which nothing goes wrong and no further caller comes.
func (w *world) fairly(e event) bool {
	switch e.kind {
	case takes, looks, connects, closesConn, ticks, releases, returns:
		return true
	case answers, steps:
		return e.choice == 0
	case acquires:
		return w.actors[e.who].begun()
	case unmakes:
		return w.closed || w.links[e.who].n.phase == Unwanted
	}
	return false
}

// apply makes an event happen.
func (w *world) apply(e event) {
	if w.aged {
		w.now += 1e9
	}
	switch t := w.t; e.kind {
	case ticks:
		c := w.timers[e.who]
		w.timers = slices.Delete(w.timers, int(e.who), int(e.who)+1)
		switch c.Kind {
		case Pause:
			t.Resume(w.now, c.Tag, c.Pool)
		case Reopen:
			t.Reopened(w.now, c.Tag)
		case Poll:
			w.poll(e.choice)
		}
	case closesTable:
		w.closed = true
		t.Close(w.now, errClosed)
	case borrowing:
		w.borrow()
	case acquires, withdraws, releases, releasesUnseen:
		w.call(e, w.actors[e.who])
	default:
		w.react(e, w.links[e.who])
	}
	w.carry()
}

// poll is a round of polls: one in which all keys are tried, or only those that were not tried before. The number of the round is no part
// of a state, because either kind can come next.
func (w *world) poll(choice uint16) {
	w.t.round = 7
	if choice > 0 {
		w.t.round = 0
	}
	w.t.Polled(w.now)
}

// call makes a caller act.
func (w *world) call(e event, a *actor) {
	switch e.kind {
	case acquires:
		w.acquire(a)
	case withdraws:
		_ = w.t.Withdraw(a.request, w.now)
		if !a.request.Settled() {
			fail("a request that was withdrawn is not settled")
		}
		w.ended(a, errClosed)
	default:
		w.release(a, e.kind == releases)
	}
}

// react makes the carrier report what happened on a connection.
func (w *world) react(e event, l *link) {
	t, n := w.t, l.n
	switch e.kind {
	case takes:
		l.driving = false
		if batch := t.Take(n, w.now); len(batch) > 0 {
			l.batch = slices.Clone(batch)
			for _, o := range l.batch {
				l.check(o)
			}
		}
	case answers:
		w.choose(l, int(e.choice))
		for i, o := range l.batch {
			l.effect(o, w.replies[i])
		}
		l.batch = nil
		t.Answer(n, w.now, w.replies, nil)
	case answerLost:
		w.lost++
		l.batch = nil
		t.Answer(n, w.now, nil, errLost)
	case looks:
		l.begin(t.Next(n, w.now))
	case steps:
		w.stepped(l, int(e.choice))
	case stepLost:
		w.lost++
		l.begin(t.Stepped(n, w.now, Reply{}, errLost))
	case ends:
		w.lost++
		t.End(n, w.now, errLost)
	default:
		w.reactEdge(e, l)
	}
}

// reactEdge makes the carrier report how the life of a connection, or its use by a borrower, begins or ends.
func (w *world) reactEdge(e event, l *link) {
	t, n := w.t, l.n
	switch e.kind {
	case connects:
		l.dialing = false
		l.gone = !t.Connected(n, w.now)
	case unmakes:
		l.dialing, l.gone = false, true
		if n.phase != Unwanted && !w.closed {
			w.lost++
		}
		t.Unmade(n, w.now, errUnmade, w.now, false)
	case closesConn:
		l.closing, l.gone = false, true
		t.Closed(n, w.now)
	case rests:
		if t.Rested(n, w.now) == Forget {
			if len(l.has) > 0 {
				fail("session %d is given back with locks", n.number)
			}
			l.gone = true
		}
	case returns, returnLost:
		w.lent = nil
		var lost error
		if e.kind == returnLost {
			w.lost++
			lost = errLost
		}
		t.Return(n, w.now, lost)
	}
}

// stepped answers the step of a goroutine that waits.
func (w *world) stepped(l *link, choice int) {
	var room [8]Reply
	reply := w.stepOutcomes(room[:0], l)[choice]
	switch {
	case reply.Held && l.step.Kind == TryAny:
		l.take(l.step.Any[reply.Index], Exclusive)
	case reply.Held:
		l.take(l.step.Tag, l.step.Mode)
	}
	l.begin(w.t.Stepped(l.n, w.now, reply, nil))
}

// settledDown reports whether all callers that came have gone, and nothing is left of them.
func (w *world) settledDown() bool {
	for _, a := range w.actors {
		if a.begun() && !a.done() {
			return false
		}
	}
	t := w.t
	if len(t.keys)+len(t.pools)+t.used > 0 || t.starved.peek() != nil || t.polled.peek() != nil || w.lent != nil || w.asked != nil {
		return false
	}
	for _, l := range w.links {
		if !l.gone && len(l.has) > 0 {
			return false
		}
	}
	return true
}

// finish lets the world go on fairly, by chance among what can happen, until all that came have gone.
func (w *world) finish(random *rand.Rand) {
	w.losses, w.closes, w.withdraw, w.refuse, w.borrows = w.lost, w.closed, false, false, 0
	var all []event
	for turn := 0; !w.settledDown(); turn++ {
		all = slices.DeleteFunc(w.events(all[:0]), func(e event) bool { return !w.fairly(e) })
		if len(all) == 0 {
			fail("callers are left that are not served, though nothing is left to happen")
		}
		if turn > 10_000 {
			fail("it goes on for ever")
		}
		e := all[random.IntN(len(all))]
		w.trace = append(w.trace, e)
		w.apply(e)
		w.invariants()
	}
}
