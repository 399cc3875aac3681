package shards

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/leader/shards/driver"
)

// A node that stops or drains gives up its shards in pieces, so that others claim one piece while the work of
// the next ends. Otherwise each shard would be ownerless for as long as the whole move takes.
const (
	// leastPiece is the minimum number of shards in a piece, and mostPieces the maximum number of pieces.
	leastPiece = 32
	mostPieces = 100
	// firstPiece is the size of the first piece, which others claim when they have noticed that there is
	// something to claim.
	firstPiece = 10
	// pace is how long a piece waits for the release of the one before it, whose work may take long to end.
	pace = 10 * time.Millisecond
	// notice is how long others have, after a node begins to stop, to see which shards they should claim.
	notice = 50 * time.Millisecond
	// courtesy is how long a piece waits for others to claim the one before it, and question is the interval
	// of checking that. If they claim nothing twice in a row, pieces stop waiting for them.
	courtesy = 250 * time.Millisecond
	question = 2 * time.Millisecond
)

// passing is the state of giving up many shards.
type passing struct {
	rest  []*ownership // shards whose work still runs
	piece []*ownership // the last piece, whose work is ending
	size  int          // size of the next piece
	next  time.Time    // when the next piece follows; zero = none

	waits  bool      // waits for others to claim the last piece
	until  time.Time // end of that wait
	asking bool      // a check of their claims is under way
	asks   time.Time // earliest time of the next check
	taken  int       // how many of the last piece others have claimed
	vain   int       // consecutive pieces that they left alone
}

// due returns when the next piece or check is due. A check that could not run yet runs when the piece's
// release, for which it waits, has ended.
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

// pass ends the contexts of the next piece when the last one was released and, where that is known, claimed
// by others; or when its time is over. The order is by name, which is the order that others expect.
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

// knowsLocked reports whether a session can count the shards that others have claimed.
func (r *run) knowsLocked() bool {
	return slices.ContainsFunc(r.sessions, func(o *session) bool {
		if o == nil || !o.lasts() {
			return false
		}
		_, ok := o.Session.(driver.Passer)
		return ok
	})
}

// inquire checks whether others have claimed the last piece.
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
