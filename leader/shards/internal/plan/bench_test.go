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
		sim.settle(b, 1)
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
