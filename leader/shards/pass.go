package shards

import (
	"slices"
	"strings"
	"time"
)

// What a node gives up at once goes in pieces, so that others claim one while the work of the next
// ends: else each shard would be left alone for as long as it takes to move all.
const (
	// leastPiece is how many shards a piece has at least, and mostPieces how many there are at most.
	leastPiece = 100
	mostPieces = 32
	// pace is how long a piece waits for the one before it to be released, whose work may not end soon.
	pace = 10 * time.Millisecond
	// notice is how long others have, from when a node begins to stop, to see what they are to claim.
	notice = 50 * time.Millisecond
)

// passing is what is to be given up.
type passing struct {
	rest  []*ownership // its work goes on
	piece []*ownership // the last piece, whose work ends
	size  int          // of the next
	next  time.Time    // when it is to follow; zero = there is none
}

func (p *passing) add(o *ownership) {
	if len(p.rest) == 0 {
		p.next = time.Now()
	}
	p.rest = append(p.rest, o)
	p.size = max(leastPiece, len(p.rest)/mostPieces)
}

// pass ends the contexts of the next piece, when the last one was released or had its time. The
// order is that of the names, in which others expect it.
func (r *run) pass() {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.passing
	if len(p.rest) == 0 || time.Now().Before(p.next) && (len(p.piece) == 0 || slices.ContainsFunc(p.piece, r.ownsLocked)) {
		return
	}
	slices.SortFunc(p.rest, func(a, b *ownership) int { return strings.Compare(a.shard.Name, b.shard.Name) })
	p.piece = p.rest[:min(p.size, len(p.rest))]
	p.rest = p.rest[len(p.piece):]
	for _, o := range p.piece {
		if r.ownsLocked(o) {
			r.giveLocked(o, nil)
		}
	}
	p.next = time.Now().Add(pace)
	if len(p.rest) == 0 {
		*p = passing{}
	}
}

func (n *Node) ownsLocked(o *ownership) bool { return n.owned[o.shard.Name] == o }
