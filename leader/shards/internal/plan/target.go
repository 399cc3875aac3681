package plan

import (
	"slices"
)

// targets returns the member that is to own each shard. active says who may get shards, leaving
// whose shards go to others. It depends on its arguments alone, so two nodes that see the same
// have the same targets, and who gives a shard up knows who takes it.
//
// A member keeps what it owns, up to its quota: what moves is what a member has too much, what a
// leaving one has, and what nobody owns. Which these are, and who gets them, weighted rendezvous
// hashing says. What a member that is neither active nor leaving owns, or a stranger, stays.
func targets(s *Shards, v *View, active, leaving []bool) []int32 {
	p := newPlanner(s, v, active, leaving)
	if p.count == 0 {
		return p.target
	}
	p.open()
	p.place(p.free)
	p.place(p.left)
	p.place(p.surplus())
	return p.target
}

type planner struct {
	s          *Shards
	v          *View
	target     []int32
	shares     []*share // by member; nil = it is not active
	count      int      // of active members
	free, left []int    // shards that nobody owns, and those of leaving members
	takers     []int32  // members that have room
}

// newPlanner sets the quotas of active members.
func newPlanner(s *Shards, v *View, active, leaving []bool) *planner {
	p := &planner{s: s, v: v, target: slices.Clone(v.Owners), shares: make([]*share, len(v.Members))}
	var shares []*share
	for m, yes := range active {
		if yes {
			p.shares[m] = &share{hash: v.hashes[m], weight: max(v.Members[m].Weight, 1)}
			shares = append(shares, p.shares[m])
		}
	}
	if p.count = len(shares); p.count == 0 {
		return p
	}
	p.divide(leaving)
	total := len(p.free) + len(p.left)
	for _, share := range shares {
		total += share.pinned + share.held
	}
	fill(shares, total)
	return p
}

// divide counts what active members have, and finds the shards that go to those with room.
func (p *planner) divide(leaving []bool) {
	for i, owner := range p.v.Owners {
		if p.pinned(i) {
			p.target[i] = p.v.Pins[i]
			p.shares[p.v.Pins[i]].pinned++
			continue
		}
		switch {
		case owner == Nobody:
			p.free = append(p.free, i)
		case owner >= 0 && p.shares[owner] != nil:
			p.shares[owner].held++
		case owner >= 0 && leaving[owner]:
			p.left = append(p.left, i)
		}
	}
}

// open has those members get shards that own less than their quota.
func (p *planner) open() {
	for m, share := range p.shares {
		if share == nil {
			continue
		}
		if share.room = share.quota - share.pinned - share.held; share.room > 0 {
			p.takers = append(p.takers, int32(m)) //nolint:gosec // an index
		}
	}
}

// surplus returns what active members own beyond their quotas: the shards for which their scores
// are the lowest.
func (p *planner) surplus() []int {
	owned := map[int32][]int{}
	for i, owner := range p.v.Owners {
		if owner >= 0 && p.shares[owner] != nil && p.shares[owner].room < 0 && !p.pinned(i) {
			owned[owner] = append(owned[owner], i)
		}
	}
	var all []int
	for owner, shards := range owned {
		slices.SortFunc(shards, func(a, b int) int {
			if p.score(owner, b).beats(p.score(owner, a)) {
				return -1
			}
			return 1
		})
		all = append(all, shards[:min(-p.shares[owner].room, len(shards))]...)
	}
	slices.Sort(all)
	return all
}

// place gives each of these shards to the taker that has the highest score for it.
func (p *planner) place(shards []int) {
	for _, i := range shards {
		if len(p.takers) == 0 {
			panic("BUG: there is less room than there are shards")
		}
		best := 0
		for t := 1; t < len(p.takers); t++ {
			if p.score(p.takers[t], i).beats(p.score(p.takers[best], i)) {
				best = t
			}
		}
		m := p.takers[best]
		p.target[i] = m
		if p.shares[m].room--; p.shares[m].room == 0 {
			p.takers = slices.Delete(p.takers, best, best+1)
		}
	}
}

// pinned reports whether shard i is pinned to a member that is active.
func (p *planner) pinned(i int) bool {
	return p.v.Pins != nil && p.v.Pins[i] >= 0 && p.shares[p.v.Pins[i]] != nil
}

func (p *planner) score(member int32, shard int) score {
	return scoreOf(p.v.hashes[member], p.s.hashes[shard], p.shares[member].weight)
}
