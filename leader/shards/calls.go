package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards/driver"
)

// batch is the maximum number of shards in one claim or release, so that work on the first begins before the
// last is claimed.
const batch = 1000

// call runs do in another goroutine. The driving goroutine then calls the function that do returns.
func (r *run) call(ctx context.Context, timeout time.Duration, do func(ctx context.Context) (then func())) {
	r.calls++
	go func() {
		call, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		r.results <- do(call)
	}()
}

// on runs do on a session that has no other call. A stop of the node does not cancel it, because its effect
// on the server would then be unknown.
func (r *run) on(o *session, doing string, do func(ctx context.Context) error, then func(ok bool)) {
	o.busy = true
	r.call(context.WithoutCancel(r.ctx), r.config.RenewTimeout, func(ctx context.Context) func() {
		asked := time.Now()
		err := do(ctx)
		o.timed(asked)
		return func() {
			o.busy = false
			then(r.outcome(doing, err))
		}
	})
}

// proceed starts the next call on each session.
func (r *run) proceed() {
	self := r.self()
	for _, o := range r.lasting() {
		if o.busy {
			continue
		}
		switch {
		case len(o.undo) > 0:
			r.undo(o)
		case o.announced != self:
			r.announce(o, self)
		case len(o.releases) > 0:
			r.release(o)
		case r.leaving || r.claim(o) || r.retry(o):
		case r.mayLook():
			r.sight(o)
		}
	}
}

// undo releases names that the session may own because of a claim whose outcome is unused.
func (r *run) undo(o *session) {
	names := o.undo
	o.undo = nil
	r.on(o, "releasing after a claim that failed",
		func(ctx context.Context) error { return o.Release(ctx, names) },
		func(bool) {}) // after an error they end with their lease
}

// announce announces changes of the node.
func (r *run) announce(o *session, self driver.Member) {
	r.on(o, "announcing",
		func(ctx context.Context) error { return o.Announce(ctx, self) },
		func(ok bool) {
			if ok {
				o.announced = self
			}
		})
}

// release releases the shards that are due.
func (r *run) release(o *session) {
	part := o.releases[:min(batch, len(o.releases))]
	o.releases = o.releases[len(part):]
	names := make([]string, len(part))
	for i, each := range part {
		names[i] = each.shard.Name
	}
	r.on(o, "releasing",
		func(ctx context.Context) error { return o.Release(ctx, names) },
		func(bool) { // after an error they end with their lease
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, each := range part {
				r.releasedLocked(each)
			}
		})
}

// claim claims the session's free shards, if there are any.
func (r *run) claim(o *session) bool {
	if names := r.take(&o.claims, o.most); len(names) > 0 {
		r.try(o, names, true)
		return true
	}
	return false
}

// retry claims one shard after each look while no claim succeeds, to detect when claims succeed again.
// Another node owns that shard.
func (r *run) retry(o *session) bool {
	drains := func(m driver.Member) bool { return m.Identity == r.config.Identity && m.Draining }
	if r.failures < 2 || !r.retried.Before(r.looked) || slices.ContainsFunc(r.seen.Members, drains) {
		return false
	}
	for name, identity := range r.seen.Owners {
		if _, listed := r.shards.Index(name); listed && identity != r.config.Identity {
			if names := r.take(&[]string{name}, 1); len(names) > 0 {
				r.retried = time.Now()
				r.try(o, names, false)
				return true
			}
		}
	}
	return false
}

// without returns the names that were not granted.
func without(names []string, grants []driver.Grant) []string {
	got := make(map[string]bool, len(grants))
	for _, g := range grants {
		got[g.Name] = true
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return got[name] })
}

// take removes and returns the first names that may be claimed.
func (r *run) take(from *[]string, most int) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(*from) > 0 && len(names) < most {
		name := (*from)[0]
		*from = (*from)[1:]
		if !r.asked[name] && r.mayClaimLocked(name) {
			names = append(names, name)
		}
	}
	return names
}

// try claims names. free means that they looked free.
func (r *run) try(o *session, names []string, free bool) {
	for _, name := range names {
		r.asked[name] = true
	}
	o.claiming = len(names)
	var grants []driver.Grant
	refused, slow := false, false
	r.on(o, "claiming",
		func(ctx context.Context) (err error) {
			grants, err = o.Claim(ctx, names)
			refused = errors.Is(err, driver.ErrUnclaimable)
			slow = errors.Is(err, driver.ErrSlow)
			return err
		},
		func(ok bool) {
			o.claiming = 0
			for _, name := range names {
				r.asked[name] = false
			}
			fewer := slow && len(names) > 1 // a smaller claim may still succeed
			switch {
			case ok || refused:
				r.failures = 0
			case !fewer:
				r.failures++
			}
			o.resize(len(names), ok, fewer)
			if free && !fewer {
				r.vain(without(names, grants))
			}
			if !ok { // the session may own some now
				o.undo, o.claims = names, nil
				return
			}
			for _, g := range grants {
				delete(r.asked, g.Name)
				delete(r.vanities, g.Name)
			}
			r.claimed(o, grants)
			if free {
				r.mu.Lock()
				r.stats.Refused += int64(len(names) - len(grants))
				r.mu.Unlock()
			}
		})
}

// resize quarters the claim size after a claim that was too much, and doubles it after a full one that was
// not.
func (o *session) resize(claimed int, ok, tooMany bool) {
	switch {
	case tooMany:
		o.most = max(claimed/4, 1)
	case ok && claimed >= o.most:
		o.most = min(2*o.most, batch)
	}
}

// claimed begins the work on granted shards.
func (r *run) claimed(o *session, grants []driver.Grant) {
	for _, g := range grants {
		i, listed := r.shards.Index(g.Name)
		switch {
		case r.leaving || !listed: // the node began to leave meanwhile, or the list has changed
			o.undo = append(o.undo, g.Name)
		case r.adopt(o, g):
			r.plan.Owned(i, time.Since(r.start))
		}
	}
}

// mayLook reports whether a look is due.
func (r *run) mayLook() bool {
	now := time.Now()
	return r.looking == nil && !now.Before(r.looks) && !now.Before(r.notSoon)
}

// sight makes a look.
func (r *run) sight(o *session) {
	begin := time.Now()
	known := uint64(0)
	if r.looker == o {
		known = r.seen.Version
	}
	r.looking, r.heard, r.looked, r.looks = o, driver.Changes{}, begin, begin.Add(pause.Jitter(r.config.LookInterval, 0.2))
	var v driver.View
	var failure error
	r.on(o, "looking",
		func(ctx context.Context) error { v, failure = o.Look(ctx, known); return failure },
		func(ok bool) {
			r.looking = nil
			r.notSoon = time.Now().Add(4 * time.Since(begin)) // looks take at most a fifth of the time
			if ok {
				r.blind = time.Time{}
				r.saw(o, v, known)
			} else if errors.Is(failure, leader.ErrPermanent) {
				r.stop(failure)
			}
		})
}

// stop gives up all sessions if looks have failed with a permanent error for half a LookInterval. The tables of the group, or the rights on them, are then gone. Work would otherwise continue
// although all its guards are refused.
func (r *run) stop(cause error) {
	if r.blind.IsZero() {
		r.blind = time.Now()
	}
	if time.Since(r.blind) < r.config.LookInterval/2 {
		return
	}
	for _, o := range r.lasting() {
		o.lose(cause)
	}
}

// saw acts on the result of a look.
func (r *run) saw(o *session, v driver.View, known uint64) {
	r.steps = time.Now()
	for name, under := range r.asked {
		if !under {
			delete(r.asked, name)
		}
	}
	if known == 0 || v.Version != known {
		r.seen, r.view, r.looker = v, r.shards.View(v), o
		r.apply(r.heard)
	}
	pinned := map[string]bool{}
	for name, identity := range r.seen.Pins {
		if identity == r.config.Identity {
			pinned[name] = true
		}
	}
	r.mu.Lock()
	r.stats.Looks++
	r.stats.Members = len(r.seen.Members)
	r.known.view, r.known.pinned = r.view, pinned
	r.mu.Unlock()
	r.forgetVain()
	r.unrest()
	r.recognize()
}

// recognize reports another node with this node's identity. Such a node owns shards that this node seems to
// own but does not, for longer than a dead session of this node could last.
func (r *run) recognize() {
	now, doubles := time.Now(), map[string]time.Time{}
	var double string
	r.mu.Lock()
	for name, identity := range r.seen.Owners {
		if identity != r.config.Identity || r.owned[name] != nil {
			continue
		}
		since, known := r.doubles[name]
		if !known {
			since = now
		}
		doubles[name] = since
		if now.Sub(since) > 2*r.config.LeaseDuration+r.config.RenewTimeout {
			double = name
		}
	}
	r.mu.Unlock()
	r.doubles = doubles
	var err error
	if double != "" {
		err = fmt.Errorf("shards: %s: %w: %s", r.config.Name, ErrIdentity, r.config.Identity)
	}
	if r.first("recognizing", err) {
		r.note(Event{Kind: EventError, Err: err})
	}
}
