package shards

import (
	"time"

	"github.com/pglatch/pglatch/leader/shards/internal/plan"
)

// A knowledge is what the node knows of others, for the goroutines that run work. It is guarded by the Node's
// mu.
type knowledge struct {
	shards  *plan.Shards
	view    *plan.View      // nil = no look yet
	pinned  map[string]bool // shards pinned to this node
	leftOut map[string]bool // members that neglected shards that they should take
}

// acceptedLocked reports whether another node would claim a shard.
func (n *Node) acceptedLocked(name string) bool {
	if n.known.view == nil {
		return false
	}
	i, ok := n.known.shards.Index(name)
	return ok && n.known.view.Accepted(n.known.shards, i, func(identity string) bool {
		return identity == n.config.Identity || n.known.leftOut[identity]
	})
}

// A vanity is a shard that looked free, and that this node claimed in vain.
type vanity struct {
	claims int
	first  time.Time
	until  time.Time // refused until then; zero = not refused
}

// vain records the names that a claim did not get. A single failed claim can come from an old view.
func (r *run) vain(names []string) {
	now := time.Now()
	for _, name := range names {
		v := r.vanities[name]
		if v == nil {
			v = &vanity{first: now}
			r.vanities[name] = v
		}
		if v.claims++; v.claims > 1 && now.Sub(v.first) >= r.config.LookInterval {
			v.until = now.Add(r.config.shun())
		}
	}
}

// forgetVain forgets shards that another node had only claimed at the same time, shards that this node
// refused for long enough, and shards that it got.
func (r *run) forgetVain() {
	now := time.Now()
	for name, v := range r.vanities {
		_, owned := r.seen.Owners[name]
		if v.until.IsZero() && owned || !v.until.IsZero() && now.After(v.until) {
			delete(r.vanities, name)
		}
	}
}

// refuses returns the announcement of the shards that this node cannot claim now: their work failed too often
// here, their work still runs though they are not owned any more, or claims of them were in vain. If no claim
// succeeds, the node refuses all shards.
func (r *run) refuses() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures > 1 {
		return plan.RefuseAll
	}
	var names []string
	now := time.Now()
	for name, s := range r.shunned {
		if now.Before(s.until) && !r.known.pinned[name] {
			names = append(names, name)
		}
	}
	for name, o := range r.stale {
		if now.Sub(o.stale) >= r.config.LookInterval {
			names = append(names, name)
		}
	}
	for name, v := range r.vanities {
		if now.Before(v.until) {
			names = append(names, name)
		}
	}
	return plan.Refusals(names)
}
