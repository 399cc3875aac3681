package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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
	since []time.Time
	moves int // of tenants from one node to another, also with nobody in between
}

// newBoard returns a board of tenants without owners.
func newBoard(names []string) *board {
	n := len(names)
	b := &board{index: map[string]int{}, names: names, owners: make([]string, n), last: make([]string, n), since: make([]time.Time, n)}
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
		b.last[i], b.since[i] = s.Owner, time.Now()
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
func (b *board) parts(name func(node string) string) (parts string) {
	for _, node := range slices.Sorted(maps.Keys(b.counts)) {
		parts += fmt.Sprintf("%s %d  ", name(node), b.counts[node])
	}
	return strings.TrimSpace(parts)
}

// summary formats the whole board in one line.
func (b *board) summary(name func(node string) string) string {
	return strings.TrimSpace(fmt.Sprintf("%s  nobody %d   moves %d   highest term %v", b.parts(name), len(b.of("")), b.moves, b.highest))
}

// The colours of nodes, by their letter.
var palette = []string{"30;46", "30;43", "30;45", "30;42", "97;44"}

func colourOf(node string) string { return palette[int(node[0]-'A')%len(palette)] }

// fresh is how long a move stays visible.
const fresh = time.Second

// rows draws a cell per tenant: its owner's letter, lower-case just after a move, or a dot for nobody.
func (b *board) rows(width int, paint func(colour, text string) string) (rows []string) {
	for part := range slices.Chunk(b.owners, width) {
		var row strings.Builder
		first := len(rows) * width
		for i, owner := range part {
			switch {
			case owner == "":
				row.WriteString("·")
			case time.Since(b.since[first+i]) < fresh:
				row.WriteString(paint(colourOf(owner), strings.ToLower(owner)))
			default:
				row.WriteString(paint(colourOf(owner), owner))
			}
		}
		rows = append(rows, row.String())
	}
	return rows
}
