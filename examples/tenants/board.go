package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pglatch/pglatch/leader/shards"
)

// A board has the tenants of each node, and of "" those that nobody has.
type board map[string][]string

// newBoard returns the tenants of the nodes that take part.
func newBoard(g shards.Group) board {
	b := board{}
	for _, m := range g.Members {
		if !m.Away {
			b[m.Identity] = nil
		}
	}
	for _, s := range g.Shards {
		b[s.Owner] = append(b[s.Owner], s.Name)
	}
	return b
}

// even reports whether these nodes own all tenants, of which there are so many, in equal parts to within one.
func (b board) even(all int, nodes ...string) bool {
	least, most := all, 0
	for _, n := range nodes {
		part := len(b[n])
		least, most, all = min(least, part), max(most, part), all-part
	}
	return all == 0 && most-least <= 1
}

func (b board) String() (parts string) {
	for _, node := range slices.Sorted(maps.Keys(b)) {
		if node != "" {
			parts += fmt.Sprintf("%s %d  ", node, len(b[node]))
		}
	}
	return fmt.Sprintf("%snobody %d", parts, len(b[""]))
}
