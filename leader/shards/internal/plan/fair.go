package plan

// Fair returns how many shards each member should own. It divides the shards of each list that are free or
// owned by members with that list. For a member that is draining, or cannot claim anything, the number
// is 0. A node that sees v and trusts every member comes to the same numbers.
func Fair(s *Shards, v *View) []int {
	fair := make([]int, len(v.Members))
	done := map[uint64]bool{}
	for _, member := range v.Members {
		if done[member.List] {
			continue
		}
		done[member.List] = true
		active, leaving := make([]bool, len(v.Members)), make([]bool, len(v.Members))
		for m, other := range v.Members {
			if other.List == member.List {
				active[m], leaving[m] = !other.Draining && !v.refusesAll(m), other.Draining
			}
		}
		p := newPlanner(s, v, roles{active: active, leaving: leaving})
		for m, share := range p.shares {
			if share != nil {
				fair[m] = share.quota
			}
		}
	}
	return fair
}
