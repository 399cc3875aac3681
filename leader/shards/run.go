package shards

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/internal/plan"
)

// Run makes the node take part in the group until ctx ends. It calls work for each shard that the node owns,
// each in a goroutine of its own. The context of work has the values of ctx, and ends before another node can
// own the shard, with the exceptions in doc.go. When a shard is given up, its context ends first, then work
// returns, and only then is the shard released. DrainTimeout bounds that wait.
//
// If work returns nil, it is done: the node keeps the shard, so that no other node repeats the work. If
// work returns an error or panics, see Config.Restart.
//
// When ctx ends, Run gives up all shards in that way. It returns nil when all calls of work have returned.
// Run returns an error that matches leader.ErrPermanent and leader.ErrGaveUp if no session was ever open and
// opening one fails with a permanent error. It returns another error if the Node is already running, and a
// *leader.ConfigError if work is nil. All other failures are reported and retried.
func (n *Node) Run(ctx context.Context, work func(ctx context.Context, s Shard) error) error {
	if work == nil {
		return wrong("work", "nil", "pass the function that works on a shard")
	}
	n.mu.Lock()
	if n.running {
		n.mu.Unlock()
		return fmt.Errorf("shards: %s: it runs already", n.config.Name)
	}
	n.running = true
	n.mu.Unlock()
	r := &run{
		Node: n, ctx: ctx, work: work, start: time.Now(), listed: n.config.ListChanged,
		results: make(chan func()), slots: n.newSlots(), asked: map[string]bool{}, problems: map[string]string{},
		vanities: map[string]*vanity{},
	}
	err := r.drive()
	r.works.Wait()
	n.note(Event{Kind: EventStopped, Err: err})
	n.report()
	n.mu.Lock()
	n.running, n.gone, n.ready, n.drains = false, nil, nil, nil
	n.mu.Unlock()
	return err
}

// A run is one call of Run. The driving goroutine owns its fields, except works. Calls of the backend run in
// other goroutines, one at a time on each session, so that a slow call does not delay another session.
type run struct {
	*Node
	ctx     context.Context
	work    func(ctx context.Context, s Shard) error
	works   sync.WaitGroup
	start   time.Time
	results chan func() // functions to call when a call has ended
	calls   int         // calls under way

	listed   <-chan struct{}
	relist   time.Time    // when to ask for the list; zero = known, or already asked for
	shards   *plan.Shards // nil = not known yet
	plan     *plan.Node
	seen     driver.View
	view     *plan.View     // of seen; nil = no look yet
	heard    driver.Changes // since the last look began
	looker   *session       // the session that saw it
	looking  *session       // the session on which a look is under way; nil = none
	listing  bool
	joined   time.Time // since when the node is a member; zero = not a member
	refusal  error     // permanent error of opening a session
	leaving  bool
	slots    []slot          // of the sessions
	slow     int             // consecutive attempts to open a session that took too long
	looks    time.Time       // the next look
	notSoon  time.Time       // no look before then, even if requested
	looked   time.Time       // when the last look began
	steps    time.Time       // when to ask the plan again; zero = after the next look
	asked    map[string]bool // true: being claimed; false: claimed in vain since the last look
	giving   giving
	doubles  map[string]time.Time // shards that the node seems to own but does not, and since when
	problems map[string]string    // present errors, by operation
	vanities map[string]*vanity
	blind    time.Time // since when looks fail permanently; zero = they do not
	failures int       // consecutive failed claims
	retried  time.Time // time of the last claim after such failures
}

// drive takes part until ctx ends, and then gives up everything in good order.
func (r *run) drive() error {
	now := time.Now()
	r.relist, r.looks = now, now
	ended := r.ctx.Done()
	for {
		r.turn()
		if r.calls == 0 && r.refusal != nil && r.joined.IsZero() && r.ctx.Err() == nil {
			return fmt.Errorf("shards: %s: %w: %w", r.config.Name, r.refusal, leader.ErrGaveUp)
		}
		if r.calls == 0 && r.leaving && !r.carries() {
			break
		}
		timer := time.NewTimer(r.wait())
		select {
		case <-ended:
			ended = nil
			r.leave()
		case then := <-r.results:
			r.calls--
			then()
		case <-timer.C:
		case <-r.wake:
		case <-r.look:
			r.changed()
		case <-r.weighed:
			r.looks = time.Now()
		case _, open := <-r.listed:
			r.relist = time.Now()
			if !open {
				r.listed = nil
			}
		}
		timer.Stop()
	}
	r.end()
	return nil
}

// lull is how long a look waits for the next piece of a node that gives up many shards. A look at everything takes longer
// than claiming the piece.
const lull = 4 * pace

// changed handles a change that the backend reported. The plan decides by it without a look, which follows when no more
// is released, or after LookInterval.
func (r *run) changed() {
	now := time.Now()
	var changes driver.Changes
	for _, o := range r.lasting() {
		changes = changes.And(o.Changes())
	}
	if !changes.Other && len(changes.Released)+len(changes.Leaving) == 0 {
		return // they came with an earlier signal, or through another session
	}
	switch {
	case changes.Other || r.view == nil:
		r.looks = now
	case r.looks.After(now):
		r.looks = now.Add(lull)
		if latest := r.looked.Add(r.config.LookInterval); latest.Before(r.looks) {
			r.looks = latest
		}
	}
	r.heard = r.heard.And(changes)
	r.apply(changes)
}

// apply changes the view by what others did.
func (r *run) apply(c driver.Changes) {
	if r.view == nil || len(c.Released)+len(c.Leaving) == 0 {
		return
	}
	for i := range r.seen.Members {
		m := &r.seen.Members[i]
		m.Draining = m.Draining || slices.Contains(c.Leaving, m.Identity)
	}
	for _, name := range c.Released {
		delete(r.seen.Owners, name)
		if !r.asked[name] {
			delete(r.asked, name)
		}
	}
	r.seen.Version = 0 // the next look sees everything
	r.view, r.steps = r.shards.View(r.seen), time.Now()
}

// turn does everything that is due now and need not wait for a call of the backend.
func (r *run) turn() {
	r.collect()
	if !r.leaving {
		r.list()
		r.open()
		r.decide()
	}
	r.giveUp()
	r.proceed()
	r.report()
}

// wait returns the time until something is due, unless an event comes earlier.
func (r *run) wait() time.Duration {
	now := time.Now()
	next := now.Add(r.config.LookInterval)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	sooner(r.giving.next)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.drains) > 0 {
		sooner(r.drains[0].due)
	}
	free := false // a session is free to look
	for i, o := range r.sessions {
		switch {
		case o == nil && !r.leaving && !r.slots[i].opening && r.shards != nil:
			sooner(r.slots[i].opens)
		case o != nil && o.over:
			sooner(o.closes)
		case o != nil && !o.busy && o.lasts():
			free = true
		}
	}
	if r.leaving {
		return max(time.Until(next), 0)
	}
	if !r.listing {
		sooner(r.relist)
	}
	if free && r.looking == nil {
		sooner(later(r.looks, r.notSoon))
	}
	if r.view != nil && !r.steps.IsZero() {
		sooner(later(r.steps, r.begins()))
	}
	return max(time.Until(next), 0)
}

// begins returns when the node begins to claim, so that nodes that start together see each other first.
func (r *run) begins() time.Time { return r.joined.Add(r.config.LookInterval / 3) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// list asks for the names, if they may have changed.
func (r *run) list() {
	if r.relist.IsZero() || time.Now().Before(r.relist) || r.listing {
		return
	}
	r.relist = time.Time{}
	if r.config.List == nil {
		r.setShards(plan.NewShards(r.config.names()))
		return
	}
	r.listing = true
	r.call(r.ctx, r.config.LeaseDuration, func(ctx context.Context) func() {
		var names []string
		err := panicked(background.Outlive(func() (err error) { names, err = r.config.List(ctx); return err }))
		if err == nil {
			err = checkShards(names)
		}
		return func() {
			r.listing = false
			if err != nil {
				r.relist = time.Now().Add(r.config.LookInterval)
				err = fmt.Errorf("shards: %s: listing the shards: %w", r.config.Name, err)
			}
			if r.ctx.Err() != nil {
				return
			}
			if r.first("listing", err) {
				r.note(Event{Kind: EventError, Err: err})
			}
			if err == nil {
				r.setShards(plan.NewShards(names))
			}
		}
	})
}

// setShards starts to use a list. Owned shards that are not in it are given up.
func (r *run) setShards(shards *plan.Shards) {
	if r.shards != nil && r.shards.Digest == shards.Digest {
		return
	}
	r.shards = shards
	now := time.Since(r.start)
	if r.plan == nil {
		r.plan = plan.NewNode(r.config.Identity, plan.Rules{
			MinStay: r.config.MinStay, Patience: r.config.patience(), MovesPerSecond: r.config.MovesPerSecond,
		}, shards, now)
	} else {
		r.plan.SetShards(shards)
	}
	if r.view != nil {
		r.view = shards.View(r.seen)
	}
	r.looks = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known.shards, r.known.view = r.shards, r.view
	for name, o := range r.owned {
		if _, ok := shards.Index(name); !ok {
			r.giveLocked(o, nil)
		}
	}
}

// self returns the node's announcement.
func (r *run) self() driver.Member {
	refuses := r.refuses()
	r.mu.Lock()
	defer r.mu.Unlock()
	m := driver.Member{Identity: r.config.Identity, Weight: r.weight, Draining: r.leaving, Refuses: refuses}
	if r.shards != nil {
		m.List = r.shards.Digest
	}
	return m
}

// outcome reports why a call of the backend failed. It does not report the same reason twice in a row.
func (r *run) outcome(doing string, err error) (ok bool) {
	if r.first(doing, err) {
		r.failed(doing, err)
	}
	return err == nil
}

// first reports whether err differs from the last error of the same operation.
func (r *run) first(doing string, err error) bool {
	if err == nil {
		delete(r.problems, doing)
		return false
	}
	again := r.problems[doing] == err.Error()
	r.problems[doing] = err.Error()
	return !again
}
