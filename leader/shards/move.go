package shards

import (
	"context"
	"slices"
	"time"

	"github.com/pglatch/pglatch/leader/shards/driver"
)

// batch is how many shards one call claims or releases at most, so that work on the first
// begins before the last is claimed.
const batch = 1000

// decide claims and gives up what the plan says.
func (r *run) decide(ctx context.Context) {
	r.limited = false
	if r.view == nil || time.Now().Before(r.begins()) {
		return
	}
	d := r.plan.Step(time.Since(r.start), r.view)
	r.limited = d.Limited
	r.mu.Lock()
	r.stats.Moved += int64(d.Moves)
	for _, i := range d.Give {
		if o := r.owned[r.shards.Names[i]]; o != nil {
			r.giveLocked(o, nil)
		}
	}
	var names []string
	for _, i := range d.Claim {
		if name := r.shards.Names[i]; r.mayClaimLocked(name) {
			names = append(names, name)
		}
	}
	r.mu.Unlock()
	for part := range slices.Chunk(names, batch) {
		if !r.claim(ctx, part) {
			return
		}
		r.report()
	}
}

// mayClaimLocked reports whether nothing speaks against a claim: the node may own it still, as
// what leaves the list and comes back; its work may go on after a loss; or may have failed too often.
func (n *Node) mayClaimLocked(name string) bool {
	if s := n.shunned[name]; s != nil {
		if time.Now().Before(s.until) {
			return false
		}
		delete(n.shunned, name)
	}
	return n.owned[name] == nil && n.stale[name] == nil
}

// claim tries to own these, each on the session that carries the fewest. It returns false if it makes no
// sense to go on.
func (r *run) claim(ctx context.Context, names []string) bool {
	for o, part := range r.divide(names) {
		call, cancel := context.WithTimeout(ctx, r.config.RenewTimeout)
		grants, err := o.Claim(call, part)
		cancel()
		if !r.outcome("claiming", err) { // some may be owned now
			settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.RenewTimeout)
			r.outcome("releasing after a claim that failed", o.Release(settle, part))
			cancel()
			return false
		}
		for _, g := range grants {
			if i, ok := r.shards.Index(g.Name); ok && r.adopt(o, g) {
				r.plan.Owned(i, time.Since(r.start))
			}
		}
		r.mu.Lock()
		r.stats.Refused += int64(len(part) - len(grants))
		r.mu.Unlock()
	}
	return true
}

// divide spreads names over the sessions so that each carries as many.
func (r *run) divide(names []string) map[*session][]string {
	parts := map[*session][]string{}
	all := r.lasting()
	if len(all) == 0 {
		return parts
	}
	carried := make([]int, len(all))
	r.mu.Lock()
	for i, o := range all {
		carried[i] = len(o.owned)
	}
	r.mu.Unlock()
	for _, name := range names {
		least := 0
		for i := range carried {
			if carried[i] < carried[least] {
				least = i
			}
		}
		carried[least]++
		parts[all[least]] = append(parts[all[least]], name)
	}
	return parts
}

// collect releases what is to be, closes the sessions that were lost, and lets the plan know.
func (r *run) collect(ctx context.Context) {
	for o, owned := range r.releasable() {
		for part := range slices.Chunk(owned, batch) {
			names := make([]string, len(part))
			for i, each := range part {
				names[i] = each.shard.Name
			}
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.RenewTimeout)
			r.outcome("releasing", o.Release(call, names)) // after an error they end by their lease
			cancel()
			r.mu.Lock()
			for _, each := range part {
				r.releasedLocked(each)
			}
			r.mu.Unlock()
		}
	}
	r.closeLost()
	r.mu.Lock()
	gone := r.gone
	r.gone = nil
	r.mu.Unlock()
	if r.shards == nil {
		return
	}
	for _, name := range gone {
		if i, ok := r.shards.Index(name); ok {
			r.plan.Gone(i)
		}
	}
}

// releasable returns what is to be released now, by session: no work of it runs, or that had its
// time.
func (r *run) releasable() map[*session][]*ownership {
	all := map[*session][]*ownership{}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.ready {
		if r.owned[o.shard.Name] == o && !(o.overdue && !r.config.KeepUntilDrained) {
			all[o.session] = append(all[o.session], o)
		}
	}
	r.ready = nil
	for _, o := range r.owned {
		if !o.giving || o.idle || o.overdue || now.Before(o.due) {
			continue
		}
		o.overdue = true
		r.noteLocked(Event{Kind: EventError, Err: r.drainExceeded(o)})
		if !r.config.KeepUntilDrained {
			o.reason = r.drainExceeded(o)
			all[o.session] = append(all[o.session], o)
		}
	}
	return all
}

// closeLost closes the sessions that were lost, when their work has ended or had its time.
func (r *run) closeLost() {
	for i := range r.sessions {
		o := r.at(i)
		if o == nil || !r.closable(o) {
			continue
		}
		o.stop()
		<-o.kept
		_ = o.Close() // it is lost either way
		r.mu.Lock()
		r.sessions[i] = nil
		r.mu.Unlock()
	}
}

// closable reports whether a session was lost and nobody needs it to last any more.
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

// leave gives everything up in good order.
func (r *run) leave() {
	ctx := context.WithoutCancel(r.ctx)
	r.mu.Lock()
	r.leaving = true
	for _, o := range r.owned {
		r.giveLocked(o, nil)
	}
	r.mu.Unlock()
	r.announce(ctx) // others know what to expect
	for r.carries() {
		wait, _ := r.turn(ctx)
		r.report()
		if !r.carries() {
			break
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.wake:
		}
		timer.Stop()
	}
	for i := range r.sessions {
		if o := r.at(i); o != nil {
			r.end(ctx, i, o)
		}
	}
	r.report()
}

// carries reports whether the node owns anything.
func (r *run) carries() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.owned) > 0
}

// end ends a session in good order, as far as it lasts.
func (r *run) end(ctx context.Context, i int, o *session) {
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
		call, cancel := context.WithTimeout(ctx, r.config.RenewTimeout)
		if err := o.Leave(call); err != nil {
			r.failed("leaving", err)
		}
		cancel()
	}
	_ = o.Close() // it has left, or ends by its lease
}

var _ driver.Session = (*session)(nil)
