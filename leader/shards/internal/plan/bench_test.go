//go:build !race

package plan

import (
	"fmt"
	"testing"
	"time"
)

// What a look costs a node when nothing has changed, and when another's shards are to be taken.
func BenchmarkStep(b *testing.B) {
	for _, members := range []int{3, 100} {
		sim := newSimulation(members, 10_000)
		for sim.step() {
		}
		view, now := sim.sight(), sim.now
		b.Run(fmt.Sprintf("unchanged/members=%d", members), func(b *testing.B) {
			for b.Loop() {
				now += time.Second
				sim.nodes[0].Step(now, view)
			}
		})
		b.Run(fmt.Sprintf("a member is gone/members=%d", members), func(b *testing.B) {
			sim.leave(members - 1)
			for b.Loop() {
				now += time.Second
				sim.nodes[0].Step(now, sim.sight())
			}
		})
	}
}

// step lets each node act once, and reports whether one did.
func (s *simulation) step() (did bool) {
	s.now += time.Minute
	v := s.sight()
	for m, node := range s.nodes {
		d := node.Step(s.now, v)
		did = did || len(d.Claim)+len(d.Give) > 0
		for _, i := range d.Give {
			s.owners[i] = ""
			node.Gone(i)
		}
		for _, i := range d.Claim {
			if s.owners[i] == "" {
				s.owners[i] = s.members[m].Identity
				node.Owned(i, s.now)
			}
		}
	}
	return did
}
