package locktable

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"slices"
)

// A canonicalizer names states. States that differ by a permutation of actors with the same script, or of keys that the scripts do not tell
// apart, have one name. Connections are named by their place in the table's list, and not by their number.
//
// Actors are put in order by what can be seen of each. Two that look the same, and are not, keep their order: the name is then
// one of several for the state, which costs time and hides nothing.
type canonicalizer struct {
	w       *world
	permute []permutation
	text    []byte
	best    []byte
	order   []uint8 // position of each actor
	links   []*link // in order
	looks   []uint64
	now     *permutation
}

// A permutation renames locks.
type permutation struct {
	locks  []uint8 // new number of each lock
	before []uint8 // its inverse
	class  []int   // of actors whose scripts are the same after it
}

func newCanonicalizer(w *world) *canonicalizer {
	c := &canonicalizer{w: w, order: make([]uint8, len(w.actors)), looks: make([]uint64, len(w.actors))}
	for _, keys := range permutations(freeKeys(w)) {
		if p, ok := newPermutation(w, keys); ok {
			c.permute = append(c.permute, p)
		}
	}
	return c
}

// freeKeys are the keys that may change places: mutexes. Close looks at keys in the order of their tags, so that none may where it comes.
func freeKeys(w *world) (keys []int) {
	for _, script := range w.scenario.actors {
		for _, q := range script {
			for _, key := range q.keys {
				if q.slots == 0 && key >= 0 && !w.closes && !slices.Contains(keys, key) {
					keys = append(keys, key)
				}
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// permutations returns all orders, the given one first.
func permutations(keys []int) (all [][]int) {
	if len(keys) == 0 {
		return [][]int{nil}
	}
	for i := range keys {
		rest := slices.Delete(slices.Clone(keys), i, i+1)
		for _, p := range permutations(rest) {
			all = append(all, append([]int{keys[i]}, p...))
		}
	}
	return all
}

// newPermutation renames the i-th of the sorted keys to keys[i]. It is of use if the actors are the same afterwards.
func newPermutation(w *world, keys []int) (p permutation, ok bool) {
	sorted := slices.Sorted(slices.Values(keys))
	rename := func(key int) int {
		if i := slices.Index(sorted, key); i >= 0 {
			return keys[i]
		}
		return key
	}
	p.locks, p.before = make([]uint8, len(w.locks)), make([]uint8, len(w.locks))
	for i := range w.locks {
		p.locks[i] = uint8(i)
	}
	for _, key := range sorted {
		from, to := slices.Index(w.locks, tagOf(key)), slices.Index(w.locks, tagOf(rename(key)))
		p.locks[from], p.locks[from+1] = uint8(to), uint8(to+1)
	}
	for from, to := range p.locks {
		p.before[to] = uint8(from)
	}
	count := make([]int, len(w.actors))
	for _, a := range w.actors {
		class := slices.IndexFunc(w.actors, func(b *actor) bool { return sameScript(a.script, b.script, rename) })
		if class < 0 {
			return p, false
		}
		p.class = append(p.class, class)
		count[class]++
		count[slices.IndexFunc(w.actors, func(b *actor) bool { return sameScript(a.script, b.script, func(key int) int { return key }) })]--
	}
	return p, !slices.ContainsFunc(count, func(n int) bool { return n != 0 })
}

func sameScript(a, b []acquisition, rename func(int) int) bool {
	return slices.EqualFunc(a, b, func(p, q acquisition) bool {
		return p.mode == q.mode && p.try == q.try && p.slots == q.slots &&
			slices.EqualFunc(p.keys, q.keys, func(i, j int) bool { return rename(i) == j })
	})
}

// A fingerprint is the name of a state.
type fingerprint [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func (c *canonicalizer) fingerprint() fingerprint {
	c.links = c.links[:0]
	for n := range c.w.t.conns.all {
		c.links = append(c.links, n.Carrier.(*link))
	}
	for _, l := range c.w.links {
		if l.gone && !l.over() {
			c.links = append(c.links, l)
		}
	}
	for i, l := range c.links {
		l.number = i
	}
	for i := range c.permute {
		c.now, c.text = &c.permute[i], c.text[:0]
		c.arrange()
		c.state()
		if i == 0 || bytes.Compare(c.text, c.best) < 0 {
			c.text, c.best = c.best, c.text
		}
	}
	return fingerprint{maphash.Bytes(seeds[0], c.best), maphash.Bytes(seeds[1], c.best)}
}

// arrange puts the actors in order.
func (c *canonicalizer) arrange() {
	for i, a := range c.w.actors {
		c.looks[i] = uint64(c.now.class[i])<<56 | c.look(a)>>8
	}
	for i := range c.looks {
		c.order[i] = 0
		for j := range c.looks {
			if c.looks[j] < c.looks[i] || c.looks[j] == c.looks[i] && j < i {
				c.order[i]++
			}
		}
	}
}

// look is a hash of what can be seen of an actor without the names of others.
func (c *canonicalizer) look(a *actor) uint64 {
	h := uint64(a.at)<<8 | uint64(a.part)<<4 | uint64(len(a.held))<<2
	mix := func(n int) { h = (h ^ uint64(n+1)) * 0x9E3779B97F4A7C15; h ^= h >> 29 }
	mix(int(a.told))
	if a.ending {
		mix(1)
	}
	if r := a.request; r != nil {
		place := 0
		for q := range r.key.requests.all {
			if q == r {
				break
			}
			place++
		}
		mix(place + 8)
	}
	if r := a.release; r != nil {
		mix(r.left + 16)
		for l, o := range c.w.operations {
			if o.By == r {
				mix(l.number + 32)
				mix(int(c.lock(o.Tag)))
			}
		}
	}
	for _, held := range a.held {
		mix(int(held.phase) + 64)
		c.lookAt(held, mix)
	}
	if a.holder != nil {
		mix(int(a.holder.phase) + 128)
		c.lookAt(a.holder, mix)
	}
	return h
}

func (c *canonicalizer) lookAt(h *Holder, mix func(int)) {
	for _, k := range h.on {
		mix(int(c.lock(k.tag)))
		mix(slices.Index(k.holders, h))
	}
}

// lock is the number of a lock.
func (c *canonicalizer) lock(tag Tag) uint8 {
	for i := range c.w.locks {
		if c.w.locks[i] == tag {
			return c.now.locks[i]
		}
	}
	return 255
}

func (c *canonicalizer) put(numbers ...int) {
	for _, n := range numbers {
		c.text = binary.AppendVarint(c.text, int64(n))
	}
}

func (c *canonicalizer) bools(all ...bool) {
	bits := byte(0)
	for i, b := range all {
		if b {
			bits |= 1 << i
		}
	}
	c.text = append(c.text, bits)
}

func (c *canonicalizer) tag(tag Tag) { c.text = append(c.text, c.lock(tag)) }

func (c *canonicalizer) tags(tags []Tag) {
	for _, tag := range tags {
		c.tag(tag)
	}
	c.text = append(c.text, 254)
}

func (c *canonicalizer) key(k *Key) {
	c.tag(k.tag)
	c.bools(k.pool)
}

func (c *canonicalizer) conn(n *Conn) {
	switch {
	case n == nil:
		c.text = append(c.text, 255)
	case n.Carrier.(*link).over():
		c.text = append(c.text, 254)
	default:
		c.text = append(c.text, byte(n.Carrier.(*link).number))
	}
}

// request names a request by its actor.
func (c *canonicalizer) request(r *Request) {
	name := byte(255)
	if r != nil {
		switch a, _ := r.Carrier.(*actor); {
		case a == nil:
			name = 100
		case a.request == r:
			name = c.order[a.number]
		case a.release == r:
			name = 50 + c.order[a.number]
		}
	}
	c.text = append(c.text, name)
}

// holder names a holder by its actor and its place there.
func (c *canonicalizer) holder(h *Holder) {
	a := h.Carrier.(*actor)
	c.text = append(c.text, c.order[a.number], byte(slices.Index(a.held, h)+1))
}

func (c *canonicalizer) op(o *Op) {
	c.text = append(c.text, byte(o.Kind), byte(o.Mode))
	c.request(o.By)
	c.tag(o.Tag)
	c.bools(o.key != nil, o.key != nil && o.key.pool, o.Turnstile.Valid())
	c.tags(o.Any)
}

// state appends all that can make a difference later.
func (c *canonicalizer) state() {
	w, t := c.w, c.w.t
	c.bools(t.closed != nil, t.polling, w.lent != nil, w.asked != nil)
	c.put(w.lost, w.borrows)
	for _, l := range c.links {
		c.session(l)
	}
	for n := range t.room.all {
		c.conn(n)
	}
	c.text = append(c.text, 253)
	for _, queue := range [2]*list[Key]{&t.starved, &t.polled} {
		for k := range queue.all {
			c.key(k)
		}
		c.text = append(c.text, 253)
	}
	for _, pool := range [2]bool{false, true} {
		keys := t.table(pool)
		for _, i := range c.now.before {
			if k := keys[w.locks[i]]; k != nil {
				c.keyState(k)
			}
		}
		c.text = append(c.text, 253)
	}
	c.inOrder(func(a *actor) { c.actorState(a) })
	c.timers()
}

func (c *canonicalizer) inOrder(of func(*actor)) {
	for place := range c.order {
		of(c.w.actors[slices.Index(c.order, uint8(place))])
	}
}

func (c *canonicalizer) session(l *link) {
	w, n := c.w, l.n
	c.text = append(c.text, byte(n.phase), byte(n.locks), byte(len(n.pending)), byte(len(l.batch)))
	c.bools(n.waiter != nil, n.yields, n.inRoom.in, w.now-n.since >= settledAfter, n.fresh(w.now), w.lent == l)
	c.bools(l.dialing, l.driving, l.attending, l.stepping, l.lost, l.closing, l.gone)
	if n.waiter != nil {
		c.key(n.waiter)
	}
	for _, o := range n.pending {
		c.op(o)
	}
	for _, o := range l.batch {
		c.op(o)
	}
	for k := range n.keys.all {
		c.key(k)
	}
	if l.attending {
		c.text = append(c.text, byte(l.step.Kind), byte(l.step.Mode))
	}
	if l.stepping {
		c.tag(l.step.Tag)
		c.tags(l.step.Any)
	}
	for _, i := range c.now.before {
		if at := l.find(w.locks[i]); at >= 0 {
			c.text = append(c.text, c.now.locks[i], byte(l.has[at].mode))
		}
	}
	c.text = append(c.text, 252)
}

func (c *canonicalizer) keyState(k *Key) {
	w, budget := c.w, c.w.t.limits.HandOverBudget
	c.key(k)
	c.text = append(c.text, byte(k.phase), byte(k.mode), byte(k.gate), byte(min(k.losses, 200)), byte(min(k.polls, 1)), byte(k.tries))
	c.request(k.op.By)
	c.conn(k.conn)
	c.bools(k.hasTurnstile, w.now-k.opened < budget, w.now-k.at < budget, k.semaphore.Valid(), k.loss != nil)
	c.tags(k.tried)
	for _, h := range k.holders {
		c.holder(h)
	}
	c.text = append(c.text, 251)
	for r := range k.requests.all {
		c.request(r)
	}
	c.text = append(c.text, 250)
}

func (c *canonicalizer) actorState(a *actor) {
	c.text = append(c.text, byte(a.at), byte(a.part), byte(len(a.held)), a.told)
	c.bools(a.request != nil, a.release != nil, a.ending)
	if r := a.request; r != nil {
		c.bools(r.told)
		c.put(len(r.outer))
	}
	if r := a.release; r != nil {
		c.put(r.left)
		c.bools(r.err != nil)
	}
	for _, h := range a.held {
		c.holderState(h)
	}
	if a.holder != nil {
		c.holderState(a.holder)
	}
}

func (c *canonicalizer) holderState(h *Holder) {
	c.text = append(c.text, byte(h.phase), byte(len(h.inside)))
	for _, k := range h.on {
		c.tag(k.tag)
	}
	c.conn(h.own)
	for _, n := range h.conns {
		c.conn(n)
	}
	c.text = append(c.text, 249)
}

// timers appends the timers, in the order of the renamed locks.
func (c *canonicalizer) timers() {
	for _, kind := range [3]Kind{Pause, Reopen, Poll} {
		at := len(c.text)
		for i := range c.w.timers {
			if t := &c.w.timers[i]; t.Kind == kind {
				name := byte(0)
				if t.Tag.Valid() {
					name = c.lock(t.Tag) << 1
				}
				if t.Pool {
					name |= 1
				}
				c.text = append(c.text, name)
			}
		}
		slices.Sort(c.text[at:])
		c.text = append(c.text, 255)
	}
}
