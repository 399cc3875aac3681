package shards

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/leader/shards/driver"
)

// What a node gives up at once goes in pieces, so that others claim one while the work of the next
// ends: else each shard would be left alone for as long as it takes to move all.
const (
	// leastPiece is how many shards a piece has at least, and mostPieces how many there are at most.
	leastPiece = 32
	mostPieces = 100
	// firstPiece is how many the first has, which is claimed when others have seen that there is something to claim.
	firstPiece = 10
	// pace is how long a piece waits for the one before it to be released, whose work may not end soon.
	pace = 10 * time.Millisecond
	// notice is how long others have, from when a node begins to stop, to see what they are to claim.
	notice = 50 * time.Millisecond
	// courtesy is how long a piece waits for others to claim the one before it, and question how often that is asked. If
	// they do not, twice in a row, nothing waits for them any more.
	courtesy = 250 * time.Millisecond
	question = 2 * time.Millisecond
)

// passing is what is to be given up.
type passing struct {
	rest  []*ownership // its work goes on
	piece []*ownership // the last piece, whose work ends
	size  int          // of the next
	next  time.Time    // when it is to follow; zero = there is none

	waits  bool      // for others to claim the last piece
	until  time.Time // if they do not
	asking bool      // whether they have
	asks   time.Time // not before then
	taken  int       // how many of the last piece they have
	vain   int       // how many pieces in a row they left alone
}

// due is when the next piece, or a question, is. One that could not be asked yet is asked when what it waits for has ended.
func (p *passing) due() time.Time {
	switch {
	case !p.waits:
		return p.next
	case p.asking || !time.Now().Before(p.asks) || p.until.Before(p.asks):
		return p.until
	}
	return p.asks
}

func (p *passing) add(o *ownership) {
	if len(p.rest) == 0 {
		p.next = time.Now()
	}
	p.rest = append(p.rest, o)
	p.size = max(leastPiece, len(p.rest)/mostPieces)
}

// pass ends the contexts of the next piece, when the last one was released, and claimed by others where that is known, or had its
// time. The order is that of the names, in which others expect it.
func (r *run) pass() {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, now := &r.passing, time.Now()
	owned := slices.ContainsFunc(p.piece, r.ownsLocked)
	switch {
	case len(p.rest) == 0,
		p.waits && now.Before(p.until),
		!p.waits && now.Before(p.next) && (len(p.piece) == 0 || owned):
		return
	}
	if p.waits && p.taken == 0 {
		p.vain++
	}
	slices.SortFunc(p.rest, func(a, b *ownership) int { return strings.Compare(a.shard.Name, b.shard.Name) })
	size := p.size
	if p.piece == nil && len(p.rest) > leastPiece {
		size = firstPiece
	}
	p.piece = p.rest[:min(size, len(p.rest))]
	p.rest = p.rest[len(p.piece):]
	for _, o := range p.piece {
		if r.ownsLocked(o) {
			r.giveLocked(o, nil)
		}
	}
	p.next, p.until = now.Add(pace), now.Add(courtesy)
	p.waits, p.taken, p.asks = p.vain < 2 && len(r.seen.Members) > 1 && r.knowsLocked(), 0, now
	if len(p.rest) == 0 {
		*p = passing{}
	}
}

// knowsLocked reports whether a session can say what others have claimed.
func (r *run) knowsLocked() bool {
	return slices.ContainsFunc(r.sessions, func(o *session) bool {
		if o == nil || !o.lasts() {
			return false
		}
		_, ok := o.Session.(driver.Passer)
		return ok
	})
}

// inquire asks whether others have claimed the last piece.
func (r *run) inquire(o *session) bool {
	passer, ok := o.Session.(driver.Passer)
	p := &r.passing
	if !ok || !p.waits || p.asking || time.Now().Before(p.asks) {
		return false
	}
	r.mu.Lock()
	grants := make([]driver.Grant, len(p.piece))
	for i, each := range p.piece {
		grants[i] = driver.Grant{Name: each.shard.Name, Term: each.shard.Term}
	}
	owned := slices.ContainsFunc(p.piece, r.ownsLocked)
	r.mu.Unlock()
	if owned {
		return false
	}
	p.asking = true
	taken := 0
	r.on(o, "asking what others have claimed",
		func(ctx context.Context) (err error) { taken, err = passer.Passed(ctx, grants); return err },
		func(ok bool) {
			p.asking, p.taken, p.asks = false, taken, time.Now().Add(question)
			if taken > 0 {
				p.vain = 0
			}
			if !ok || taken >= len(grants) {
				p.waits = false
			}
		})
	return true
}

func (n *Node) ownsLocked(o *ownership) bool { return n.owned[o.shard.Name] == o }
