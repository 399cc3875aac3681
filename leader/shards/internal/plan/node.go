package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/pglatch/pglatch/leader/shards/driver"
)

// Rules are the times and limits of a Node.
type Rules struct {
	// MinStay is how long a shard stays where it was claimed before it is moved to even out.
	MinStay time.Duration
	// Patience is how long a member may leave alone what is its to take.
	Patience time.Duration
	// MovesPerSecond is how many shards a node gives up in a second to even out.
	MovesPerSecond int
}

// maxMistrust is how many times MinStay, or Patience if that is longer, a member is left out at most that takes nothing.
const maxMistrust = 8

// A Node decides for one member which shards it claims and which it gives up. It does no I/O,
// starts no goroutine and reads no clock: what it says depends on its calls alone. now is the
// time since some fixed moment.
type Node struct {
	self   string
	rules  Rules
	shards *Shards
	state  []shard
	others map[string]*other
	moves  float64       // how many are allowed now
	last   time.Duration // when moves was reckoned
}

// A shard is what a Node knows of one.
type shard struct {
	mine  possession
	since time.Duration // when it was claimed
	free  time.Duration // nobody owns it: first seen then; never = somebody does
	owner uint64        // the hash of the member that was seen to own it last; 0 = nobody was
	lay   uint64        // the hash of the member that let it lie last; 0 = nobody did, or that took it since
}

type possession uint8

const (
	none   possession = iota
	owned             // claimed
	giving            // to be given up, work is drained
)

// never is before all times.
const never = time.Duration(-1 << 62)

// An other is what a Node knows of another member. A member that lets lie what is its to take is left out. Then it
// is on trial: it gets one shard at a time, and is left out longer if it lets that lie too. It is trusted again when it
// was seen to claim something.
type other struct {
	claimed  time.Duration // when it was seen to own what it did not before; or first seen
	until    time.Duration // left out until then
	mistrust int           // how many times it is left out for; 0 = it is trusted
}

// A Decision is what a member does now: indices of shards.
type Decision struct {
	Claim []int // try to own it
	Give  []int // end its work, then release it
	// Expect is what another owns and is to give up to this member. Who has much to give up does so in this order.
	Expect []int
	// Limited: more is to be given up, as soon as MovesPerSecond allows it.
	Limited bool
	// Moves is how many of Give are to even out.
	Moves int
}

// NewNode returns the Node of the member self, which owns nothing.
func NewNode(self string, rules Rules, shards *Shards, now time.Duration) *Node {
	n := &Node{self: self, rules: rules, shards: NewShards(nil), others: map[string]*other{}, moves: float64(rules.MovesPerSecond), last: now}
	n.SetShards(shards)
	return n
}

// SetShards changes the list. What is owned and not in it any more is forgotten.
func (n *Node) SetShards(shards *Shards) {
	state := make([]shard, len(shards.Names))
	for i, name := range shards.Names {
		if old, ok := n.shards.Index(name); ok {
			state[i] = n.state[old]
		} else {
			state[i] = shard{free: never}
		}
	}
	n.shards, n.state = shards, state
}

// Owned notes that a claim of shard i succeeded.
func (n *Node) Owned(i int, now time.Duration) {
	s := &n.state[i]
	s.mine, s.since, s.free = owned, now, never
}

// Gone notes that shard i was released or lost.
func (n *Node) Gone(i int) { n.state[i].mine = none }

// Step decides what to do by v, which it may not have seen before. It counts what it says to give
// up as being given up.
func (n *Node) Step(now time.Duration, v *View) Decision {
	v, self := n.correct(v)
	if self < 0 {
		return Decision{} // it is no member yet, or the view is of before it was
	}
	n.watch(v, now)
	target := n.targets(v, n.roles(v, self, now))
	if n.suspect(v, self, target, now) {
		target = n.targets(v, n.roles(v, self, now))
	}
	return n.decide(v, self, target, now)
}

// correct returns v with what the node knows better: what itself owns, and what itself can claim, of which others see what
// it said last.
func (n *Node) correct(v *View) (right *View, self int32) {
	at, ok := slices.BinarySearchFunc(v.Members, n.self, func(m driver.Member, identity string) int { return cmp.Compare(m.Identity, identity) })
	if !ok {
		return v, -1
	}
	self = int32(at) //nolint:gosec // an index
	right = v
	if v.refusals != nil && (v.refusals[self].all || len(v.refusals[self].some) > 0) {
		right = v.clone()
		right.refusals[self] = refusal{}
	}
	for i := range n.state {
		owner := v.Owners[i]
		switch mine := n.state[i].mine != none; {
		case mine && owner != self:
			owner = self
		case !mine && owner == self:
			owner = Nobody // it was released a moment ago, or its session is dying
		default:
			continue
		}
		if right == v {
			right = v.clone()
		}
		right.Owners[i] = owner
	}
	return right, self
}

// watch notes what others do.
func (n *Node) watch(v *View, now time.Duration) {
	present, hashes := make(map[string]*other, len(v.Members)), make(map[uint64]bool, len(v.Members))
	for m, member := range v.Members {
		o := n.others[member.Identity]
		if o == nil {
			o = &other{claimed: now, until: never}
		}
		present[member.Identity], hashes[v.hashes[m]] = o, true
	}
	n.others = present
	for i, owner := range v.Owners {
		s := &n.state[i]
		switch {
		case owner != Nobody:
			s.free = never
		case s.free == never:
			s.free = now
		}
		if s.lay != 0 && !hashes[s.lay] {
			s.lay = 0 // it is gone: if it comes back it may be another
		}
		if owner < 0 || v.hashes[owner] == s.owner {
			continue
		}
		if s.owner = v.hashes[owner]; s.owner == s.lay {
			s.lay = 0
		}
		o := present[v.Members[owner].Identity]
		o.claimed, o.until, o.mistrust = now, never, 0
	}
}

// roles says who may get shards, and whose go to others. Members that know other shards even out
// among themselves.
func (n *Node) roles(v *View, self int32, now time.Duration) roles {
	r := roles{active: make([]bool, len(v.Members)), leaving: make([]bool, len(v.Members))}
	var trial, closed []int
	tried := true // all active members are on trial
	for m, member := range v.Members {
		o := n.others[member.Identity]
		switch {
		case member.List != n.shards.Digest && m != int(self):
		case member.Draining:
			r.leaving[m] = true
		case m == int(self):
			r.active[m], tried = true, false
		case o.until > now:
		case v.refusesAll(m):
			closed = append(closed, m)
		default:
			if r.active[m] = true; o.mistrust > 0 {
				trial = append(trial, m)
			} else {
				tried = false
			}
		}
	}
	if !slices.Contains(r.active, true) {
		for _, m := range closed { // else nobody would be left
			r.active[m], tried = true, false
		}
	}
	if len(trial) > 0 && !tried {
		r.trial = make([]bool, len(v.Members))
		for _, m := range trial {
			r.trial[m] = true
		}
	}
	r.lay = n.lay(v)
	return r
}

// lay returns which member let each shard lie last; nil = none did.
func (n *Node) lay(v *View) (lay []int32) {
	var index map[uint64]int32
	for i := range n.state {
		if n.state[i].lay == 0 {
			continue
		}
		if lay == nil {
			lay, index = slices.Repeat([]int32{Nobody}, len(n.state)), make(map[uint64]int32, len(v.Members))
			for m, hash := range v.hashes {
				index[hash] = int32(m) //nolint:gosec // an index
			}
		}
		if m, ok := index[n.state[i].lay]; ok {
			lay[i] = m
		}
	}
	return lay
}

// targets computes them, or has them from the View: where nothing is special all nodes have the
// same.
func (n *Node) targets(v *View, r roles) []int32 {
	if slices.Contains(r.active, false) || r.trial != nil || r.lay != nil || v.refusals != nil {
		return targets(n.shards, v, r)
	}
	if v.plan == nil {
		v.plan = targets(n.shards, v, r)
	}
	return v.plan
}

// suspect leaves out, for a time, members that do not take what is theirs, so that others do. It
// reports whether there are any. A member that says that it cannot take a shard does not let it lie.
func (n *Node) suspect(v *View, self int32, target []int32, now time.Duration) bool {
	found := false
	for i, owner := range v.Owners {
		t := target[i]
		if owner != Nobody || t < 0 || t == self || v.refuses(t, i) || v.refusesAll(int(t)) {
			continue
		}
		o := n.others[v.Members[t].Identity]
		if now-max(n.state[i].free, o.claimed) <= n.rules.Patience {
			continue
		}
		if o.until <= now {
			o.mistrust = min(max(2*o.mistrust, 1), maxMistrust)
			o.until = now + time.Duration(o.mistrust)*max(n.rules.MinStay, n.rules.Patience)
			found = true
		}
	}
	if !found {
		return false
	}
	for i, owner := range v.Owners { // the next target has its own time to take them
		if t := target[i]; owner == Nobody && t >= 0 && n.others[v.Members[t].Identity].until > now {
			n.state[i].free, n.state[i].lay = now, v.hashes[t]
		}
	}
	return true
}

// LeftOut returns the members that let lie what was theirs to take, and claimed nothing since.
func (n *Node) LeftOut() map[string]bool {
	out := map[string]bool{}
	for identity, o := range n.others {
		if o.mistrust > 0 {
			out[identity] = true
		}
	}
	return out
}

func (n *Node) decide(v *View, self int32, target []int32, now time.Duration) Decision {
	rate := float64(n.rules.MovesPerSecond)
	n.moves = min(rate, n.moves+rate*(now-n.last).Seconds())
	n.last = now
	var d Decision
	for i, t := range target {
		s := &n.state[i]
		switch {
		case t == self && v.Owners[i] == Nobody:
			d.Claim = append(d.Claim, i)
		case t == self && v.Owners[i] >= 0 && s.mine == none:
			d.Expect = append(d.Expect, i)
		case t == self || t < 0 || s.mine != owned:
		case v.Members[self].Draining || v.Pins != nil && v.Pins[i] == t:
			s.mine = giving
			d.Give = append(d.Give, i)
		case now-s.since < n.rules.MinStay:
		case n.moves < 1:
			d.Limited = true
		default:
			n.moves--
			d.Moves++
			s.mine = giving
			d.Give = append(d.Give, i)
		}
	}
	return d
}
