package plan

import (
	"cmp"
	"slices"
)

// A share is what one active member has, and is to have.
type share struct {
	hash   uint64
	weight int
	pinned int // shards that are pinned to it
	held   int // shards that it owns and may keep, without those that are pinned
	most   int // its quota is not greater than this, unless more are pinned to it
	quota  int // how many it is to own, pinned ones included
	room   int // how many more it is to own
	over   int // how many less
}

// fill sets the quotas, whose sum is total: each is its member's part of total by weight, rounded
// down or up. Rounded up are those first that own as much already, so that nothing moves for a
// rounding. A member with more shards pinned to it than its part gets these, and no other. A member whose
// part is greater than what it may have at most gets that. The rest is divided among the others.
func fill(shares []*share, total int) {
	for {
		weights := 0
		for _, s := range shares {
			weights += s.weight
		}
		if weights == 0 {
			return
		}
		over := false
		shares = slices.DeleteFunc(shares, func(s *share) bool {
			switch part := total * s.weight; {
			case over:
				return false
			case s.pinned*weights > part:
				s.quota = s.pinned
			case s.most*weights < part:
				s.quota = s.most
			default:
				return false
			}
			over = true
			total -= s.quota
			return true
		})
		if !over {
			round(shares, total, weights)
			return
		}
	}
}

// round divides total by weight.
func round(shares []*share, total, weights int) {
	rest := total
	var uneven []*share
	for _, s := range shares {
		s.quota = total * s.weight / weights
		rest -= s.quota
		if total*s.weight%weights != 0 {
			uneven = append(uneven, s)
		}
	}
	slices.SortFunc(uneven, func(a, b *share) int {
		return cmp.Or(
			-cmp.Compare(min(a.pinned+a.held-a.quota, 1), min(b.pinned+b.held-b.quota, 1)), // 1 or less: what is more has to go anyway
			cmp.Compare(a.hash, b.hash))
	})
	for _, s := range uneven[:min(rest, len(uneven))] {
		s.quota++
	}
}
