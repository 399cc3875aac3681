package plan

import (
	"slices"
)

// roles are the roles of the members in the assignment.
type roles struct {
	active  []bool  // members that may get shards
	leaving []bool  // members whose shards go to others
	trial   []bool  // active members that get only one shard more than they own; nil = none
	lay     []int32 // by shard: the last member that neglected it, or Nobody; nil = none
}

// targets returns the member that should own each shard. It depends on its arguments alone. So two nodes that
// see the same have the same targets, and the owner that gives up a shard knows who takes it.
//
// A member keeps its shards up to its quota. Three kinds of shards move: those beyond a quota, those of a
// leaving member, and free ones. Weighted rendezvous hashing selects them and their new owners. Shards of a
// stranger, or of a member that is neither active nor leaving, stay.
//
// An owned shard never goes to a member that refuses it. A free one does so only if all active members refuse
// it. A member that neglected a shard gets it again only if no other member has room for it, and no other
// shard can be given instead.
func targets(s *Shards, v *View, r roles) []int32 {
	p := newPlanner(s, v, r)
	if p.count == 0 {
		return p.target
	}
	p.open()
	p.place(p.loose, false)
	p.place(p.surplus(), true)
	return p.target
}

// An urgency sets how far a placement may go to find a member.
type urgency uint8

const (
	withinQuotas urgency = iota // the shard stays if no member with room accepts it
	beyondQuotas                // the shard stays if no active member accepts it
	atAnyPrice                  // the shard always gets a target
)

type planner struct {
	roles
	s      *Shards
	v      *View
	target []int32
	shares []*share // by member; nil = not active
	count  int      // of active members
	fussy  bool     // some members refuse or have neglected shards
	loose  []int    // shards without an owner and of leaving members: in one order, so that a release changes no target
	takers []int32  // members that have room
	all    []int32  // active members that are not on trial
}

// newPlanner sets the quotas of active members.
func newPlanner(s *Shards, v *View, r roles) *planner {
	p := &planner{roles: r, s: s, v: v, target: slices.Clone(v.Owners), shares: make([]*share, len(v.Members)), fussy: v.refusals != nil || r.lay != nil}
	var shares []*share
	for m, yes := range r.active {
		if yes {
			p.shares[m] = &share{hash: v.hashes[m], weight: max(v.Members[m].Weight, 1)}
			shares = append(shares, p.shares[m])
		}
	}
	if p.count = len(shares); p.count == 0 {
		return p
	}
	p.divide()
	total := len(p.loose)
	for _, share := range shares {
		total += share.pinned + share.held
	}
	for m, share := range p.shares {
		if share != nil {
			share.most = p.most(m, total)
		}
	}
	fill(shares, total)
	return p
}

// most returns how many of total shards a member may own.
func (p *planner) most(m, total int) int {
	if p.v.refusals != nil {
		for i := range p.v.refusals[m].some {
			if owner := p.v.Owners[i]; owner != int32(m) && p.inPlay(owner) { //nolint:gosec // an index
				total--
			}
		}
	}
	if p.trial != nil && p.trial[m] {
		total = min(total, p.shares[m].pinned+p.shares[m].held+1)
	}
	return total
}

// inPlay reports whether the shards of this owner can go to others.
func (p *planner) inPlay(owner int32) bool {
	return owner == Nobody || owner >= 0 && (p.shares[owner] != nil || p.leaving[owner])
}

// divide counts the shards of active members, and finds the shards that go to members with room.
func (p *planner) divide() {
	for i, owner := range p.v.Owners {
		if p.pinned(i) {
			p.target[i] = p.v.Pins[i]
			p.shares[p.v.Pins[i]].pinned++
			continue
		}
		switch {
		case owner >= 0 && p.shares[owner] != nil:
			p.shares[owner].held++
		case p.inPlay(owner):
			p.loose = append(p.loose, i)
		}
	}
}

// open lets members get shards that own less than their quota.
func (p *planner) open() {
	for m, share := range p.shares {
		if share == nil {
			continue
		}
		if p.trial == nil || !p.trial[m] {
			p.all = append(p.all, int32(m)) //nolint:gosec // an index
		}
		share.room = share.quota - share.pinned - share.held
		if share.over = max(-share.room, 0); share.room > 0 {
			p.takers = append(p.takers, int32(m)) //nolint:gosec // an index
		}
	}
}

// surplus returns the shards that active members own beyond their quotas and that others accept: those for
// which the owners' scores are the lowest.
func (p *planner) surplus() []int {
	owned := map[int32][]int{}
	for i, owner := range p.v.Owners {
		if owner >= 0 && p.shares[owner] != nil && p.shares[owner].over > 0 && !p.pinned(i) {
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
		shards = p.wanted(shards)
		all = append(all, shards[:min(p.shares[owner].over, len(shards))]...)
	}
	slices.Sort(all)
	return all
}

// wanted returns the given shards that a member with room accepts. Shards accepted only by members that
// neglected them come last.
func (p *planner) wanted(shards []int) []int {
	if !p.fussy {
		return shards
	}
	var good, last []int
	for _, i := range shards {
		switch {
		case p.best(p.takers, i, willing) >= 0:
			good = append(good, i)
		case p.best(p.takers, i, accepting) >= 0:
			last = append(last, i)
		}
	}
	return append(good, last...)
}

// place assigns each of these shards to the member with the highest score for it.
func (p *planner) place(shards []int, surplus bool) {
	for _, i := range shards {
		how := beyondQuotas
		if surplus {
			how = withinQuotas
		} else if p.v.Owners[i] == Nobody {
			how = atAnyPrice
		}
		m := p.choose(i, how)
		if m < 0 {
			continue
		}
		p.target[i] = m
		if p.shares[m].room--; p.shares[m].room == 0 {
			at := slices.Index(p.takers, m)
			p.takers = slices.Delete(p.takers, at, at+1)
		}
	}
}

// choose returns the new owner of a shard, or Nobody.
func (p *planner) choose(i int, how urgency) int32 {
	m := p.best(p.takers, i, willing)
	if m < 0 && p.fussy {
		m = p.best(p.takers, i, accepting)
	}
	if m < 0 && how >= beyondQuotas {
		if m = p.best(p.all, i, willing); m < 0 {
			m = p.best(p.all, i, accepting)
		}
	}
	if m < 0 && how == atAnyPrice {
		if m = p.best(p.takers, i, anybody); m < 0 {
			m = p.best(p.all, i, anybody)
		}
	}
	return m
}

// A standard sets which members are eligible for a shard.
type standard uint8

const (
	anybody   standard = iota
	accepting          // excludes members that refuse it
	willing            // also excludes the member that neglected it
)

// best returns the eligible member with the highest score for a shard, or Nobody.
func (p *planner) best(among []int32, i int, which standard) int32 {
	best := Nobody
	for _, m := range among {
		if p.fussy && (which >= accepting && p.v.refuses(m, i) || which >= willing && p.lay != nil && p.lay[i] == m) {
			continue
		}
		if best < 0 || p.score(m, i).beats(p.score(best, i)) {
			best = m
		}
	}
	return best
}

// pinned reports whether shard i is pinned to a member that is active, and does not refuse it.
func (p *planner) pinned(i int) bool {
	return p.v.Pins != nil && p.v.Pins[i] >= 0 && p.shares[p.v.Pins[i]] != nil && !p.v.refuses(p.v.Pins[i], i)
}

func (p *planner) score(member int32, shard int) score {
	return scoreOf(p.v.hashes[member], p.s.hashes[shard], p.shares[member].weight)
}
