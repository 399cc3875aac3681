package locktable

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
