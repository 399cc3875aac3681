package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
)

// A board shows each tenant's owner and counts the moves.
type board struct {
	names   []string
	index   map[string]int
	owners  []string       // of the tenants, in order; "" = nobody
	counts  map[string]int // tenants per node that takes part
	highest leader.Term

	last  []string // the last owner of each tenant
	moves int      // of tenants from one node to another, also with nobody in between
}

// newBoard returns a board of tenants without owners.
func newBoard(names []string) *board {
	n := len(names)
	b := &board{index: map[string]int{}, names: names, owners: make([]string, n), last: make([]string, n)}
	for i, name := range names {
		b.index[name] = i
	}
	return b
}

// see updates the board from an observation.
func (b *board) see(g shards.Group) {
	clear(b.owners)
	b.counts = map[string]int{}
	for _, m := range g.Members {
		if !m.Away {
			b.counts[m.Identity] = m.Owned
		}
	}
	for _, s := range g.Shards {
		i := b.index[s.Name]
		if b.owners[i] = s.Owner; s.Term.Compare(b.highest) > 0 {
			b.highest = s.Term
		}
		if s.Owner == "" || s.Owner == b.last[i] {
			continue
		}
		if b.last[i] != "" {
			b.moves++
		}
		b.last[i] = s.Owner
	}
}

// even reports whether these nodes own all tenants, in equal parts to within one.
func (b *board) even(nodes ...string) bool {
	least, most, total := len(b.owners), 0, 0
	for _, n := range nodes {
		least, most, total = min(least, b.counts[n]), max(most, b.counts[n]), total+b.counts[n]
	}
	return total == len(b.owners) && most-least <= 1
}

// of returns the tenants of a node; "" = of nobody.
func (b *board) of(node string) (owned []string) {
	for i, owner := range b.owners {
		if owner == node {
			owned = append(owned, b.names[i])
		}
	}
	return owned
}

// parts formats how many tenants each node owns.
func (b *board) parts() (parts string) {
	for _, node := range slices.Sorted(maps.Keys(b.counts)) {
		parts += fmt.Sprintf("%s %d  ", node, b.counts[node])
	}
	return strings.TrimSpace(parts)
}

// summary formats the whole board in one line.
func (b *board) summary() string {
	return strings.TrimSpace(fmt.Sprintf("%s  nobody %d   moves %d   highest term %v", b.parts(), len(b.of("")), b.moves, b.highest))
}
