package shards

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/leader/shards/internal/plan"
)

// decide asks the plan what to claim and what to give up, if something may have changed.
func (r *run) decide() {
	now := time.Now()
	if r.view == nil || r.steps.IsZero() || now.Before(later(r.steps, r.begins())) {
		return
	}
	d := r.plan.Step(time.Since(r.start), r.view)
	r.steps = time.Time{}
	leftOut := r.plan.LeftOut()
	if d.Limited {
		r.steps = now.Add(100 * time.Millisecond)
	}
	var give []*ownership
	r.mu.Lock()
	r.stats.Moved += int64(d.Moves)
	r.known.leftOut = leftOut
	for _, i := range d.Give {
		if o := r.owned[r.shards.Names[i]]; o != nil {
			give = append(give, o)
		}
	}
	r.mu.Unlock()
	r.giving.add(give, now)
	r.divide(d)
}

// giving are shards to be given up in pieces, so that others claim one piece while the work of the next ends. Given up
// all at once, each shard would have no owner for as long as the whole move takes.
type giving struct {
	rest []*ownership // shards whose work still runs
	size int          // of a piece
	next time.Time    // when the next piece follows; zero = none
}

const (
	// leastPiece is the minimum number of shards in a piece, mostPieces the maximum number of pieces, and pace the time
	// between two.
	leastPiece = 32
	mostPieces = 20
	pace       = 75 * time.Millisecond
	// notice is how long others have to learn that a node leaves.
	notice = 50 * time.Millisecond
)

// add adds shards, in the order in which other nodes assign them: by name.
func (g *giving) add(all []*ownership, begin time.Time) {
	if len(all) == 0 {
		return
	}
	if len(g.rest) == 0 {
		g.next = begin
	}
	g.rest = append(g.rest, all...)
	g.size = max(leastPiece, len(g.rest)/mostPieces)
}

// giveUp ends the contexts of the next piece when it is due. It waits while the releases of earlier pieces wait.
func (r *run) giveUp() {
	g, now := &r.giving, time.Now()
	if len(g.rest) == 0 || now.Before(g.next) {
		return
	}
	g.next = now.Add(pace)
	if slices.ContainsFunc(r.lasting(), func(o *session) bool { return len(o.releases) > 0 }) {
		return
	}
	piece := g.rest[:min(g.size, len(g.rest))]
	if g.rest = g.rest[len(piece):]; len(g.rest) == 0 {
		*g = giving{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range piece {
		if r.owned[o.shard.Name] == o {
			r.giveLocked(o, nil)
		}
	}
}

// mayClaimLocked reports whether the shard may be claimed. It may not in these cases:
//
//   - The node still owns it, for example because it left the list and came back.
//   - Its work still runs after a loss.
//   - Its work has failed too often, unless it is pinned here or no other node would claim it.
func (n *Node) mayClaimLocked(name string) bool {
	if s := n.shunned[name]; s != nil {
		now := time.Now()
		if !n.known.pinned[name] && (now.Before(s.alone) || now.Before(s.until) && n.acceptedLocked(name)) {
			return false
		}
		delete(n.shunned, name)
	}
	return n.owned[name] == nil && n.stale[name] == nil
}

// divide assigns the claims to sessions, so that each carries the same number. A session that looks gets none, because a
// look can take long.
func (r *run) divide(d plan.Decision) {
	all := r.lasting()
	if len(all) > 1 {
		all = slices.DeleteFunc(all, func(o *session) bool { return o == r.looking })
	}
	if len(all) == 0 {
		return
	}
	carried := make([]int, len(all))
	r.mu.Lock()
	for i, o := range all {
		carried[i] = len(o.owned) + o.claiming
	}
	r.mu.Unlock()
	place := func() *session {
		least := 0
		for i := range carried {
			if carried[i] < carried[least] {
				least = i
			}
		}
		carried[least]++
		return all[least]
	}
	for _, o := range all {
		o.claims = nil
	}
	for _, i := range d.Claim {
		if name := r.shards.Names[i]; !r.wasAsked(name) {
			o := place()
			o.claims = append(o.claims, name)
		}
	}
}

// wasAsked reports whether a shard is being claimed, or was claimed in vain since the last look.
func (r *run) wasAsked(name string) bool {
	_, ok := r.asked[name]
	return ok
}

// collect assigns the shards to release to their sessions, closes lost sessions, and notifies the plan.
func (r *run) collect() {
	r.releasable()
	r.closeLost()
	r.mu.Lock()
	gone := r.gone
	r.gone = nil
	r.mu.Unlock()
	if r.shards == nil || len(gone) == 0 {
		return
	}
	r.steps = time.Now()
	for _, name := range gone {
		if i, ok := r.shards.Index(name); ok {
			r.plan.Gone(i)
		}
	}
}

// releasable queues shards for release whose work has ended or has exceeded its time.
func (r *run) releasable() {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.ready {
		if r.owned[o.shard.Name] == o && !(o.overdue && !r.config.KeepUntilDrained) {
			o.session.releases = append(o.session.releases, o)
		}
	}
	r.ready = r.ready[:0]
	for ; len(r.drains) > 0 && !now.Before(r.drains[0].due); r.drains = r.drains[1:] {
		o := r.drains[0]
		if o.idle || r.owned[o.shard.Name] != o {
			continue
		}
		o.overdue = true
		r.noteLocked(Event{Kind: EventError, Err: r.drainExceeded(o)})
		if !r.config.KeepUntilDrained {
			o.reason = r.drainExceeded(o)
			o.session.releases = append(o.session.releases, o)
		}
	}
}

// closeLost closes lost sessions whose work has ended or has exceeded its time.
func (r *run) closeLost() {
	for i := range r.sessions {
		o := r.at(i)
		if o == nil || !r.closable(o) {
			continue
		}
		o.stop()
		<-o.kept
		_ = o.Close() // the session is lost either way
		r.mu.Lock()
		r.sessions[i] = nil
		r.mu.Unlock()
		r.vacated(i, o)
	}
}

// closable reports whether a session is lost and need not last any longer.
func (r *run) closable(o *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !o.over {
		return false
	}
	if !time.Now().Before(o.closes) {
		return true
	}
	for _, each := range r.stale {
		if each.session == o {
			return false
		}
	}
	return true
}

func (r *run) isOver(o *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return o.over
}

// leave begins to give up everything in good order.
func (r *run) leave() {
	r.leaving = true
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.sessions {
		if o != nil {
			o.claims = nil
		}
	}
	r.giving = giving{}
	all := slices.SortedFunc(maps.Values(r.owned), func(a, b *ownership) int { return strings.Compare(a.shard.Name, b.shard.Name) })
	if len(r.seen.Members) > 1 {
		r.giving.add(all, time.Now().Add(notice))
		return
	}
	for _, o := range all { // no other node waits for them
		r.giveLocked(o, nil)
	}
}

// carries reports whether the node owns any shard.
func (r *run) carries() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.owned) > 0
}

// end ends the sessions in good order, as far as they still last.
func (r *run) end() {
	for i := range r.sessions {
		if o := r.at(i); o != nil {
			r.endSession(i, o)
		}
	}
	r.report()
}

func (r *run) endSession(i int, o *session) {
	o.stop()
	<-o.kept
	for timer := time.NewTimer(r.config.LossDrain); r.isOver(o) && !r.closable(o); {
		select {
		case <-timer.C:
		case <-r.wake:
		}
	}
	r.mu.Lock()
	lost := o.over
	o.over = true
	r.sessions[i] = nil
	r.mu.Unlock()
	if !lost {
		call, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), r.config.RenewTimeout)
		if err := o.Leave(call); err != nil {
			r.failed("leaving", err)
		}
		cancel()
	}
	_ = o.Close() // it has left, or ends with its lease
}
