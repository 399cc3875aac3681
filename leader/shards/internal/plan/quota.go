package plan

import (
	"cmp"
	"slices"
)

// A share is the present and future number of shards of one active member.
type share struct {
	hash   uint64
	weight int
	pinned int // shards pinned to it
	held   int // shards that it owns and may keep, without pinned ones
	most   int // upper limit of its quota, unless more are pinned to it
	quota  int // how many it should own, pinned ones included
	room   int // how many more it should own
	over   int // how many fewer it should own
}

// fill sets the quotas, whose sum is total. Each quota is the member's part of total by weight, rounded down
// or up. Members that already own as many are rounded up first, so that no shard moves because of rounding.
//
// A member with more shards pinned to it than its part gets these, and no other. A member whose part exceeds
// its maximum gets the maximum. The rest is divided among the others.
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
			-cmp.Compare(min(a.pinned+a.held-a.quota, 1), min(b.pinned+b.held-b.quota, 1)), // 1 or less: further surplus has to go anyway
			cmp.Compare(a.hash, b.hash))
	})
	for _, s := range uneven[:min(rest, len(uneven))] {
		s.quota++
	}
}
