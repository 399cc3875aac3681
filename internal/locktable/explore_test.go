package locktable

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// An exploration visits every state of a scenario, depth first. In each it demands the invariants. At the end it demands that each state has a
// fair continuation in which all callers that came are served and go.
type exploration struct {
	scenario
	bound  int // of states; 0 = none
	states int
	events int

	w       *world
	names   *canonicalizer
	numbers map[fingerprint]int32
	fair    [][2]int32 // which state follows which
	calm    []bool     // states in which all that came have gone
	origin  []origin
	depths  []*depth
}

// An origin is how a state was first reached.
type origin struct {
	from  int32
	event event
}

// A depth is what is kept of a state while the states after it are visited.
type depth struct {
	snapshot
	state  int32
	events []event
	next   int
}

// run returns the way to a violation, or nothing.
func (x *exploration) run() string {
	x.w = newWorld(x.scenario)
	x.names = newCanonicalizer(x.w)
	x.numbers = make(map[fingerprint]int32)
	at := x.enter(0, x.names.fingerprint(), origin{from: -1})
	for at >= 0 {
		d := x.depths[at]
		if d.next == len(d.events) || x.bound > 0 && len(x.origin) >= x.bound {
			at--
			continue
		}
		e := d.events[d.next]
		if d.next++; d.next > 1 {
			d.restore(x.w)
		}
		fair := x.w.fairly(e)
		if problem := guarded(func() { x.w.apply(e); x.w.invariants() }); problem != "" {
			return tell(problem, append(x.path(d.state), e), nil)
		}
		x.events++
		at = x.arrive(at, e, fair)
	}
	x.states = len(x.origin)
	return x.stuck()
}

// arrive notes the state after an event, and enters it if it is new.
func (x *exploration) arrive(at int, e event, fair bool) int {
	from, before := x.depths[at].state, len(x.origin)
	name := x.names.fingerprint()
	number, known := x.numbers[name]
	if !known {
		number = int32(before)
	}
	if fair {
		x.fair = append(x.fair, [2]int32{from, number})
	}
	if known {
		return at
	}
	return x.enter(at+1, name, origin{from, e})
}

// enter makes the present state, which is new, the one whose events come next.
func (x *exploration) enter(at int, name fingerprint, o origin) int {
	if at == len(x.depths) {
		x.depths = append(x.depths, new(depth))
	}
	d := x.depths[at]
	d.state, d.next = int32(len(x.origin)), 0
	d.events = x.w.events(d.events[:0])
	d.save(x.w)
	x.numbers[name] = d.state
	x.origin = append(x.origin, o)
	x.calm = append(x.calm, x.w.settledDown())
	return at
}

// path returns the events that led to a state.
func (x *exploration) path(state int32) (events []event) {
	for ; x.origin[state].from >= 0; state = x.origin[state].from {
		events = append(events, x.origin[state].event)
	}
	slices.Reverse(events)
	return events
}

// stuck looks for a state from which fair events do not lead to one in which all that came have gone. Each state that the bound left
// unvisited counts as good.
func (x *exploration) stuck() string {
	before := make([][]int32, len(x.origin))
	for _, f := range x.fair {
		if f[0] != f[1] {
			before[f[1]] = append(before[f[1]], f[0])
		}
	}
	var good []int32
	for i, calm := range x.calm {
		if calm {
			good = append(good, int32(i))
		}
	}
	for len(good) > 0 {
		last := good[len(good)-1]
		good = good[:len(good)-1]
		for _, i := range before[last] {
			if !x.calm[i] {
				x.calm[i] = true
				good = append(good, i)
			}
		}
	}
	if i := slices.Index(x.calm, false); i >= 0 && x.bound == 0 {
		return tell("callers are left that no fair continuation serves", x.path(int32(i)), nil)
	}
	return ""
}

// walk lets 300 events happen at random, lets the world end fairly, and returns the way to a violation, or nothing.
func walk(sc scenario, seed uint64) string {
	w := newWorld(sc)
	random := rand.New(rand.NewPCG(seed, 0))
	var way, all []event
	problem := guarded(func() {
		for range 300 {
			if all = w.events(all[:0]); len(all) == 0 {
				break
			}
			e := all[random.IntN(len(all))]
			way = append(way, e)
			w.apply(e)
			w.invariants()
		}
		w.finish(random)
	})
	if problem == "" {
		return ""
	}
	return tell(problem, way, w.trace[:min(len(w.trace), 50)])
}

// guarded runs a function and returns what it panicked with.
func guarded(f func()) (problem string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case violation:
			problem = string(p)
		case BugError:
			problem = p.Error()
		default:
			problem = fmt.Sprint("panic: ", p)
		}
	}()
	f()
	return ""
}

func tell(problem string, events, then []event) string {
	var b strings.Builder
	fmt.Fprintln(&b, problem)
	for _, e := range events {
		fmt.Fprintf(&b, "  %v\n", e)
	}
	for _, e := range then {
		fmt.Fprintf(&b, "  then, fairly, %v\n", e)
	}
	return b.String()
}

// A snapshot is a state of a world, to which the world can go back. All objects stay where they are, so that no pointer changes.
type snapshot struct {
	table    Table
	now      Instant
	lost     int
	closed   bool
	borrows  int
	lent     *link
	asked    *Request
	timers   []Command
	links    objects[link]
	actors   objects[actor]
	conns    objects[Conn]
	keys     objects[Key]
	holders  objects[Holder]
	requests objects[Request]
	ops      objects[Op]

	linkLists   lists[*link]
	holderLists lists[*Holder]
	opLists     lists[*Op]
	keyLists    lists[*Key]
	lockLists   lists[lock]
	inside      lists[*Request]
	insideOf    []map[*Request]struct{}
}

// objects are copies of objects.
type objects[T any] struct {
	of  []*T
	was []T
}

func (o *objects[T]) clear() { o.of, o.was = o.of[:0], o.was[:0] }

func (o *objects[T]) add(of *T) { o.of, o.was = append(o.of, of), append(o.was, *of) }

func (o *objects[T]) restore() {
	for i, of := range o.of {
		*of = o.was[i]
	}
}

// lists are copies of slices whose elements can change in place.
type lists[T any] struct {
	of  [][]T
	was []T
}

func (l *lists[T]) clear() { l.of, l.was = l.of[:0], l.was[:0] }

func (l *lists[T]) add(of []T) {
	if len(of) > 0 {
		l.of, l.was = append(l.of, of), append(l.was, of...)
	}
}

func (l *lists[T]) restore() {
	at := 0
	for _, of := range l.of {
		at += copy(of, l.was[at:])
	}
}

// save makes s the present state. Its memory is used again.
func (s *snapshot) save(w *world) {
	s.forget()
	s.table, s.now, s.lost, s.closed, s.borrows, s.lent, s.asked = *w.t, w.now, w.lost, w.closed, w.borrows, w.lent, w.asked
	s.timers = append(s.timers, w.timers...)
	s.linkLists.add(w.links)
	s.keyLists.add(w.t.spare)
	if w.asked != nil {
		s.requests.add(w.asked)
	}
	for _, l := range w.links {
		s.addLink(l)
	}
	for _, k := range w.t.keys {
		s.addKey(k)
	}
	for _, k := range w.t.pools {
		s.addKey(k)
	}
	for _, k := range w.t.spare {
		s.keys.add(k)
	}
	for _, a := range w.actors {
		s.addActor(a)
	}
}

func (s *snapshot) forget() {
	s.timers = s.timers[:0]
	s.links.clear()
	s.actors.clear()
	s.conns.clear()
	s.keys.clear()
	s.holders.clear()
	s.requests.clear()
	s.ops.clear()
	s.linkLists.clear()
	s.holderLists.clear()
	s.opLists.clear()
	s.keyLists.clear()
	s.lockLists.clear()
	s.inside.clear()
	s.insideOf = s.insideOf[:0]
}

func (s *snapshot) addLink(l *link) {
	s.links.add(l)
	s.conns.add(l.n)
	s.lockLists.add(l.has)
	for _, ops := range [][]*Op{l.n.pending, l.n.batch, l.batch} {
		s.opLists.add(ops)
		for _, o := range ops {
			s.ops.add(o)
		}
	}
}

func (s *snapshot) addKey(k *Key) {
	s.keys.add(k)
	s.holderLists.add(k.holders)
}

func (s *snapshot) addActor(a *actor) {
	s.actors.add(a)
	s.holderLists.add(a.held)
	for _, h := range a.held {
		s.addHolder(h)
	}
	if a.holder != nil {
		s.addHolder(a.holder)
	}
	if a.request != nil {
		s.requests.add(a.request)
	}
	if a.release != nil {
		s.requests.add(a.release)
	}
}

func (s *snapshot) addHolder(h *Holder) {
	s.holders.add(h)
	if h.inside == nil {
		return
	}
	s.insideOf = append(s.insideOf, h.inside)
	for r := range h.inside {
		s.inside.was = append(s.inside.was, r)
	}
	s.inside.was = append(s.inside.was, nil) // the end of this set
}

// restore makes the state of s the present one.
func (s *snapshot) restore(w *world) {
	*w.t, w.now, w.lost, w.closed, w.borrows, w.lent, w.asked = s.table, s.now, s.lost, s.closed, s.borrows, s.lent, s.asked
	w.timers = append(w.timers[:0], s.timers...)
	if len(s.linkLists.of) > 0 {
		w.links = s.linkLists.of[0]
	} else {
		w.links = w.links[:0]
	}
	s.links.restore()
	s.actors.restore()
	s.conns.restore()
	s.keys.restore()
	s.holders.restore()
	s.requests.restore()
	s.ops.restore()
	s.linkLists.restore()
	s.holderLists.restore()
	s.opLists.restore()
	s.keyLists.restore()
	s.lockLists.restore()
	s.restoreMaps(w)
}

func (s *snapshot) restoreMaps(w *world) {
	clear(w.t.keys)
	clear(w.t.pools)
	for i, k := range s.keys.of {
		if s.keys.was[i].table != nil { // else it is a spare one
			w.t.table(k.pool)[k.tag] = k
		}
	}
	at := 0
	for _, of := range s.insideOf {
		clear(of)
		for ; s.inside.was[at] != nil; at++ {
			of[s.inside.was[at]] = struct{}{}
		}
		at++
	}
}
