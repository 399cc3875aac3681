package advisory

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// databases are the databases that Lockers of this process use, by session.Stats.Database.
var databases struct {
	sync.Mutex
	known map[string]*database
}

// A database is the state that the Lockers of this process on one database share. It has the Lockers, and the
// requests that wait while their callers hold locks of other Lockers. A nil database is unknown, and behaves
// like an empty one.
//
// Lock order: searching before core.mu before mu. No goroutine holds two core.mu at a time.
type database struct {
	name   string
	others atomic.Bool // there is more than one Locker

	searching sync.Mutex // held during a search, so that only one wait of a cycle ends

	mu     sync.Mutex
	cores  map[*core]struct{}
	inside map[*Lock]map[*request]struct{} // requests of other Lockers, by the lock in their request.abroad
}

// joinDatabase adds a Locker to its database. leave removes it.
func joinDatabase(name string, c *core) *database {
	if name == "" {
		return nil
	}
	databases.Lock()
	defer databases.Unlock()
	d := databases.known[name]
	if d == nil {
		d = &database{name: name, cores: make(map[*core]struct{}), inside: make(map[*Lock]map[*request]struct{})}
		if databases.known == nil {
			databases.known = make(map[string]*database)
		}
		databases.known[name] = d
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cores[c] = struct{}{}
	d.others.Store(len(d.cores) > 1)
	return d
}

// leave removes a Locker that has no requests and no locks any more.
func (d *database) leave(c *core) {
	if d == nil {
		return
	}
	databases.Lock()
	defer databases.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.cores, c)
	d.others.Store(len(d.cores) > 1)
	if len(d.cores) == 0 {
		delete(databases.known, d.name)
	}
}

// shared reports whether there are several Lockers.
func (d *database) shared() bool { return d != nil && d.others.Load() }

// reentrantAbroad rejects a key that the caller holds with another Locker on the database. It notes in the
// request the locks that the caller holds with other Lockers. It is not called under core.mu.
func (c *core) reentrantAbroad(r *request) error {
	for l := r.lock.around; l != nil; l = l.around {
		if l.core == c || c.database == nil || l.core.database != c.database || !l.liveNow() {
			continue
		}
		if held, ok := l.has(r); ok {
			return &reentrantError{Key: r.name, Held: held}
		}
		r.abroad, r.Abroad = append(r.abroad, l), true
	}
	return nil
}

// add notes a request that waits while its caller holds locks of other Lockers, under the request's core.mu.
func (d *database) add(r *request) {
	if len(r.abroad) == 0 {
		return
	}
	r.identify()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range r.abroad {
		if d.inside[l] == nil {
			d.inside[l] = make(map[*request]struct{})
		}
		d.inside[l][r] = struct{}{}
	}
}

// forget undoes add, under the request's core.mu.
func (d *database) forget(r *request) {
	if len(r.abroad) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range r.abroad {
		if delete(d.inside[l], r); len(d.inside[l]) == 0 {
			delete(d.inside, l)
		}
	}
}

// A wait is a snapshot of a request, taken by a search. The request may have been reused since, unless it is
// still in its queue with the same number.
type wait struct {
	core    *core
	request *request
	id      uint64
	name    namespace.Key
	mode    session.Mode
	slot    bool
	inside  *Lock // the lock that stays held during the wait
	before  *wait // the wait that inside blocks; nil for the first wait
}

func waitOf(r *request, inside *Lock, before *wait) *wait {
	return &wait{core: r.lock.core, request: r, id: r.identify(), name: r.name, mode: r.Mode, slot: r.slots != nil, inside: inside, before: before}
}

// search ends the wait of a request that closes a cycle through several Lockers. In a cycle, the holder of
// the wanted lock waits for another lock, and so on, up to a lock that the request's caller holds. The
// request's caller calls search, without core.mu.
//
// The search inspects one Locker at a time, so the state that it saw may never have existed at one moment. A
// cycle is real if all of it is still there at a second check. In that case none of its waits and locks
// ended between the two checks, so the whole cycle existed in between.
func (d *database) search(r *request) {
	d.searching.Lock()
	defer d.searching.Unlock()
	c := r.lock.core
	c.mu.Lock()
	if r.Settled() || r.deadlock != nil {
		c.mu.Unlock()
		return
	}
	first := waitOf(r, nil, nil)
	mine := append(locksOf(r.Outer()), r.abroad...)
	c.mu.Unlock()

	seen := map[*request]bool{r: true}
	for queue := []*wait{first}; len(queue) > 0; queue = queue[1:] {
		w := queue[0]
		for _, l := range d.blockers(w) {
			if slices.Contains(mine, l) {
				if last := (&wait{inside: l, before: w}); d.still(last) {
					c.giveWayTo(r, last)
				}
				return
			}
			for _, next := range d.waitsInside(l, w) {
				if !seen[next.request] {
					seen[next.request] = true
					queue = append(queue, next)
				}
			}
		}
	}
}

// giveWayTo ends the wait of a request that closes a cycle.
func (c *core) giveWayTo(r *request, last *wait) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Settled() {
		return
	}
	e := &deadlockError{}
	for w := last.before; w != nil; w = w.before {
		e.Cycle = append(e.Cycle, w.name)
	}
	slices.Reverse(e.Cycle)
	r.deadlock = e
}

// still reports whether all waits and locks of a cycle still exist, from its end to its beginning.
func (d *database) still(last *wait) bool {
	for w := last; w.before != nil; w = w.before {
		if !slices.Contains(d.blockers(w.before), w.inside) {
			return false
		}
	}
	return true
}

// blockers returns the locks of this process that a wait waits for, none if the wait has ended.
func (d *database) blockers(w *wait) (locks []*Lock) {
	if w.slot || !w.waits() {
		return nil
	}
	for _, c := range d.all() {
		locks = append(locks, c.inTheWayOf(w)...)
	}
	return locks
}

// waits reports whether the request is still in its queue.
func (w *wait) waits() bool {
	w.core.mu.Lock()
	defer w.core.mu.Unlock()
	return w.find() != nil
}

// find returns the request if it is still in its queue, under its core.mu. A try does not count: it waits
// only for an answer, not for a lock.
func (w *wait) find() *request {
	k := w.core.table.Key(w.name.Tag(), false)
	if k == nil {
		return nil
	}
	for q := range k.Requests {
		if r := requestOf(q); r == w.request && r.id == w.id && r.deadlock == nil && !r.Try {
			return r
		}
	}
	return nil
}

// inTheWayOf returns the locks of this Locker that a wait waits for.
func (c *core) inTheWayOf(w *wait) []*Lock {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.core == c {
		if r := w.find(); r != nil {
			return r.blockers()
		}
		return nil
	}
	if k := c.table.Key(w.name.Tag(), false); k != nil && k.Conflicts(w.mode) {
		return locksOf(k.Holders())
	}
	return nil
}

// waitsInside returns the waits during which a lock stays held.
func (d *database) waitsInside(l *Lock, before *wait) (waits []*wait) {
	c := l.core
	c.mu.Lock()
	for r := range l.hold.Inside {
		waits = append(waits, waitOf(requestOf(r), l, before))
	}
	c.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	for r := range d.inside[l] {
		waits = append(waits, waitOf(r, l, before))
	}
	return waits
}

// all returns the Lockers.
func (d *database) all() []*core {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.cores))
}
