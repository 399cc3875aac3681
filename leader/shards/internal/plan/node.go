package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/pglatch/pglatch/leader/shards/driver"
)

// Rules are the times and limits of a Node.
type Rules struct {
	// MinStay is how long a shard stays where it was claimed before it can move for balance.
	MinStay time.Duration
	// Patience is how long a member may neglect shards that it should take.
	Patience time.Duration
	// MovesPerSecond limits how many shards a node gives up per second for balance.
	MovesPerSecond int
}

// maxMistrust limits how long a member that takes nothing is left out: a multiple of MinStay, or of Patience
// if that is longer.
const maxMistrust = 8

// A Node decides for one member which shards it claims and which it gives up. It does no I/O, starts no
// goroutine and reads no clock: its decisions depend only on its calls. now is the time since some fixed
// moment.
type Node struct {
	self   string
	rules  Rules
	shards *Shards
	state  []shard
	others map[string]*other
	moves  float64       // moves allowed now
	last   time.Duration // when moves was computed last
}

// A shard is the Node's state of one shard.
type shard struct {
	mine  possession
	since time.Duration // when it was claimed
	free  time.Duration // when it was first seen free; never = it has an owner
	owner uint64        // hash of the last member seen to own it; 0 = none
	lay   uint64        // hash of the last member that neglected it; 0 = none, or that member has taken it since
}

type possession uint8

const (
	none   possession = iota
	owned             // claimed
	giving            // being given up, work drains
)

// never is earlier than all times.
const never = time.Duration(-1 << 62)

// An other is the Node's state of another member. A member that neglects shards that it should take is left
// out. Then it is on trial: it gets one shard at a time, and is left out longer if it neglects that too. It
// is trusted again when it was seen to claim a shard.
type other struct {
	claimed  time.Duration // when it was last seen with a new shard, or first seen
	until    time.Duration // left out until then
	mistrust int           // factor of the time for which it is left out; 0 = trusted
}

// A Decision lists the indices of the shards on which a member acts now.
type Decision struct {
	Claim []int // shards to claim
	Give  []int // shards to give up: end their work, then release them
	// Limited means that more shards must be given up, as soon as MovesPerSecond allows it.
	Limited bool
	// Moves is the number of shards in Give that move for balance.
	Moves int
}

// NewNode returns the Node of the member self, which owns nothing.
func NewNode(self string, rules Rules, shards *Shards, now time.Duration) *Node {
	n := &Node{self: self, rules: rules, shards: NewShards(nil), others: map[string]*other{}, moves: float64(rules.MovesPerSecond), last: now}
	n.SetShards(shards)
	return n
}

// SetShards changes the list. Owned shards that are not in the list any more are forgotten.
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

// Owned records that a claim of shard i succeeded.
func (n *Node) Owned(i int, now time.Duration) {
	s := &n.state[i]
	s.mine, s.since, s.free = owned, now, never
}

// Gone records that shard i was released or lost.
func (n *Node) Gone(i int) { n.state[i].mine = none }

// Step returns the decision for v. v may be a view that the Node has seen before. Step counts the shards in
// Give as being given up.
func (n *Node) Step(now time.Duration, v *View) Decision {
	v, self := n.correct(v)
	if self < 0 {
		return Decision{} // not a member yet, or the view is older than the membership
	}
	n.watch(v, now)
	target := n.targets(v, n.roles(v, self, now))
	if n.suspect(v, self, target, now) {
		target = n.targets(v, n.roles(v, self, now))
	}
	return n.decide(v, self, target, now)
}

// correct returns v with the Node's own newer knowledge: the shards that it owns, and the shards that it can
// claim. Others see only its last announcement of these.
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
			owner = Nobody // released a moment ago, or its session is dying
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

// watch records the actions of others.
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
			s.lay = 0 // the member is gone: if its identity returns, it may be another process
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

// roles returns which members may get shards, and whose shards go to others. Members with another list even
// out among themselves.
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
		for _, m := range closed { // otherwise no active member would be left
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

// lay returns which member last neglected each shard; nil = none did.
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

// targets computes the targets, or reuses those of the View: without special cases all nodes have the same.
func (n *Node) targets(v *View, r roles) []int32 {
	if slices.Contains(r.active, false) || r.trial != nil || r.lay != nil || v.refusals != nil {
		return targets(n.shards, v, r)
	}
	if v.plan == nil {
		v.plan = targets(n.shards, v, r)
	}
	return v.plan
}

// suspect leaves out, for a time, members that do not take the shards that they should, so that others do. It
// reports whether there are any. A member that announced that it cannot take a shard does not neglect it.
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
	for i, owner := range v.Owners { // the next target gets its own time to take them
		if t := target[i]; owner == Nobody && t >= 0 && n.others[v.Members[t].Identity].until > now {
			n.state[i].free, n.state[i].lay = now, v.hashes[t]
		}
	}
	return true
}

// LeftOut returns the members that neglected shards that they should take, and claimed nothing since.
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
