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

// maxMistrust is how many times MinStay a member is left out that takes nothing.
const maxMistrust = 4

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
}

type possession uint8

const (
	none   possession = iota
	owned             // claimed
	giving            // to be given up, work is drained
)

// never is before all times.
const never = time.Duration(-1 << 62)

// An other is what a Node knows of another member.
type other struct {
	owns     int           // how many shards, when it was seen last
	grown    time.Duration // when it was seen to own more than before
	until    time.Duration // left out until then
	mistrust int           // how many times MinStay it was left out last
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
	n.state[i] = shard{mine: owned, since: now, free: never}
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
	active, leaving := n.roles(v, now)
	active[self] = !v.Members[self].Draining
	target := n.targets(v, active, leaving)
	if n.suspect(v, self, target, now) {
		active, leaving = n.roles(v, now)
		active[self] = !v.Members[self].Draining
		target = n.targets(v, active, leaving)
	}
	return n.decide(v, self, target, now)
}

// correct returns v with what the node knows better: what itself owns.
func (n *Node) correct(v *View) (right *View, self int32) {
	at, ok := slices.BinarySearchFunc(v.Members, n.self, func(m driver.Member, identity string) int { return cmp.Compare(m.Identity, identity) })
	if !ok {
		return v, -1
	}
	self = int32(at) //nolint:gosec // an index
	right = v
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
			right = &View{Members: v.Members, Owners: slices.Clone(v.Owners), Pins: v.Pins, hashes: v.hashes}
		}
		right.Owners[i] = owner
	}
	return right, self
}

// watch notes what others do.
func (n *Node) watch(v *View, now time.Duration) {
	counts := make([]int, len(v.Members))
	for i, owner := range v.Owners {
		s := &n.state[i]
		switch {
		case owner != Nobody:
			s.free = never
		case s.free == never:
			s.free = now
		}
		if owner >= 0 {
			counts[owner]++
		}
	}
	present := make(map[string]*other, len(v.Members))
	for m, member := range v.Members {
		o := n.others[member.Identity]
		if o == nil {
			o = &other{grown: now, until: never}
		}
		if counts[m] > o.owns {
			o.grown, o.mistrust = now, 0
		}
		o.owns = counts[m]
		present[member.Identity] = o
	}
	n.others = present
}

// roles says who may get shards, and whose go to others. Members that know other shards even out
// among themselves.
func (n *Node) roles(v *View, now time.Duration) (active, leaving []bool) {
	active, leaving = make([]bool, len(v.Members)), make([]bool, len(v.Members))
	for m, member := range v.Members {
		if member.List == n.shards.Digest {
			leaving[m] = member.Draining
			active[m] = !member.Draining && n.others[member.Identity].until <= now
		}
	}
	return active, leaving
}

// targets computes them, or has them from the View: where nothing is special all nodes have the
// same.
func (n *Node) targets(v *View, active, leaving []bool) []int32 {
	if slices.Contains(active, false) {
		return targets(n.shards, v, active, leaving)
	}
	if v.plan == nil {
		v.plan = targets(n.shards, v, active, leaving)
	}
	return v.plan
}

// suspect leaves out, for a time, members that do not take what is theirs, so that others do. It
// reports whether there are any.
func (n *Node) suspect(v *View, self int32, target []int32, now time.Duration) bool {
	found := false
	for i, owner := range v.Owners {
		t := target[i]
		if owner != Nobody || t < 0 || t == self {
			continue
		}
		o := n.others[v.Members[t].Identity]
		if o.until > now || now-max(n.state[i].free, o.grown) <= n.rules.Patience {
			continue
		}
		o.mistrust = min(max(2*o.mistrust, 1), maxMistrust)
		o.until = now + time.Duration(o.mistrust)*n.rules.MinStay
		found = true
	}
	if !found {
		return false
	}
	for i, owner := range v.Owners { // who is to take them now has its own time for it
		if t := target[i]; owner == Nobody && t >= 0 && n.others[v.Members[t].Identity].until > now {
			n.state[i].free = now
		}
	}
	return true
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
