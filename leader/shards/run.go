package shards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/internal/plan"
)

// Run takes part until ctx ends, and calls work for each shard that the node owns, in a goroutine
// of its own. The context of work ends before another node can own the shard, but for what doc.go says, and has the values of
// ctx. When a shard is given up its context ends first, then work returns, and only then is the
// shard released; DrainTimeout bounds that.
//
// Work that returns nil is done: the node keeps the shard, so that no other repeats the work. For one that
// returns an error or panics, see Config.Restart.
//
// When ctx ends, Run gives all shards up in that way and returns nil when all calls of work have returned. It returns
// an error, which matches leader.ErrPermanent and leader.ErrGaveUp, if the backend says that no session can be
// opened before somebody mends something, and none was open before; and another error if the Node runs already. What else fails is reported and tried again.
func (n *Node) Run(ctx context.Context, work func(ctx context.Context, s Shard) error) error {
	n.mu.Lock()
	if n.running {
		n.mu.Unlock()
		return fmt.Errorf("shards: %s: it runs already", n.config.Name)
	}
	n.running = true
	n.mu.Unlock()
	r := &run{Node: n, ctx: ctx, work: work, start: time.Now(), listed: n.config.ListChanged}
	err := r.drive()
	r.works.Wait()
	n.note(Event{Kind: EventStopped, Err: err})
	n.report()
	n.mu.Lock()
	n.running, n.gone, n.ready = false, nil, nil
	n.mu.Unlock()
	return err
}

// A run is one call of Run. What it has is its goroutine's, but for works.
type run struct {
	*Node
	ctx   context.Context
	work  func(ctx context.Context, s Shard) error
	works sync.WaitGroup
	start time.Time

	listed   <-chan struct{}
	relist   time.Time    // when the list is to be asked for; zero = it is known
	shards   *plan.Shards // nil = not known yet
	plan     *plan.Node
	seen     driver.View
	view     *plan.View // of seen; nil = nothing was seen yet
	joined   time.Time  // since when it is a member; zero = it is none
	leaving  bool
	opens    time.Time         // not before then
	looks    time.Time         // the next look
	notSoon  time.Time         // nor is one that somebody asked for before then
	limited  bool              // more is to be given up soon
	problems map[string]string // why calls of the backend fail, by what they do
}

// drive takes part until ctx ends.
func (r *run) drive() error {
	now := time.Now()
	r.relist, r.looks = now, now
	for r.ctx.Err() == nil {
		wait, err := r.turn(r.ctx)
		if r.joined.IsZero() && errors.Is(err, leader.ErrPermanent) && r.ctx.Err() == nil {
			return fmt.Errorf("shards: %s: %w: %w", r.config.Name, err, leader.ErrGaveUp)
		}
		timer := time.NewTimer(wait)
		select {
		case <-r.ctx.Done():
		case <-timer.C:
		case <-r.wake:
		case <-r.look:
			r.looks = time.Now()
		case _, open := <-r.listed:
			r.relist = time.Now()
			if !open {
				r.listed = nil
			}
		}
		timer.Stop()
	}
	r.leave()
	return nil
}

// turn does what is to be done now, and says when to look again whether there is anything. The error
// is why no session could be opened.
func (r *run) turn(ctx context.Context) (wait time.Duration, err error) {
	if r.leaving {
		r.collect(context.WithoutCancel(ctx))
		return r.wait(), nil
	}
	r.list(ctx)
	r.collect(ctx)
	err = r.open(ctx)
	if r.shards != nil {
		r.announce(ctx)
		r.sight(ctx)
		r.decide(ctx)
		r.collect(ctx) // what had no work to end
	}
	r.report()
	return r.wait(), err
}

// wait is how long nothing is to be done.
func (r *run) wait() time.Duration {
	now := time.Now()
	next := now.Add(r.config.LookInterval)
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if r.shards != nil && !r.leaving && len(r.lasting()) > 0 {
		sooner(later(r.looks, r.notSoon))
		if begins := r.begins(); begins.After(now) {
			sooner(begins)
		}
	}
	if r.limited {
		sooner(now.Add(100 * time.Millisecond))
	}
	if !r.relist.IsZero() {
		sooner(r.relist)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.sessions {
		switch {
		case o == nil && !r.leaving:
			sooner(r.opens)
		case o != nil && o.over:
			sooner(o.closes)
		}
	}
	for _, o := range r.owned {
		if o.giving && !o.idle && !o.overdue {
			sooner(o.due)
		}
	}
	return max(time.Until(next), 0)
}

// begins is when the node begins to claim: those who start together see each other first.
func (r *run) begins() time.Time { return r.joined.Add(r.config.LookInterval / 3) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// list asks for the names, if they may have changed.
func (r *run) list(ctx context.Context) {
	if r.relist.IsZero() || time.Now().Before(r.relist) {
		return
	}
	r.relist = time.Time{}
	names := r.config.names()
	if r.config.List != nil {
		asking, cancel := context.WithTimeout(ctx, r.config.LeaseDuration)
		defer cancel()
		var err error
		if names, err = r.config.List(asking); err != nil {
			r.relist = time.Now().Add(r.config.LookInterval)
			if ctx.Err() == nil {
				r.failed("listing the shards", err)
			}
			return
		}
	}
	r.setShards(plan.NewShards(names))
}

// setShards begins to go by a list. What is owned and not in it is given up.
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
	for name, o := range r.owned {
		if _, ok := shards.Index(name); !ok {
			r.giveLocked(o, nil)
		}
	}
}

// self is what the node says of itself.
func (r *run) self() driver.Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := driver.Member{Identity: r.config.Identity, Weight: r.weight, Draining: r.leaving}
	if r.shards != nil {
		m.List = r.shards.Digest
	}
	return m
}

// open opens the sessions that there are not.
func (r *run) open(ctx context.Context) (err error) {
	if r.shards == nil || time.Now().Before(r.opens) {
		return nil
	}
	for i := range r.sessions {
		if r.at(i) != nil {
			continue
		}
		self, from := r.self(), boottime.Present()
		call, cancel := context.WithTimeout(ctx, r.config.RenewTimeout)
		s, openErr := r.config.Backend.Open(call, self, r.config.LeaseDuration)
		cancel()
		if r.outcome("opening a session", openErr) {
			o := r.newSession(s, self, from)
			r.mu.Lock()
			r.sessions[i] = o
			r.mu.Unlock()
			r.log.Info("a session was opened", slog.Int("session", i))
			r.looks = time.Now()
			if r.joined.IsZero() {
				r.joined = r.looks
			}
			continue
		}
		err = openErr
		r.opens = time.Now().Add(jitter(r.config.LookInterval))
	}
	return err
}

func (r *run) at(i int) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[i]
}

// lasting returns the sessions that carry shards now.
func (r *run) lasting() (all []*session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.sessions {
		if o != nil && o.lasts() {
			all = append(all, o)
		}
	}
	return all
}

// announce says what has changed of the node.
func (r *run) announce(ctx context.Context) {
	self := r.self()
	for _, o := range r.lasting() {
		if o.announced == self {
			continue
		}
		call, cancel := context.WithTimeout(ctx, r.config.RenewTimeout)
		if r.outcome("announcing", o.Announce(call, self)) {
			o.announced = self
		}
		cancel()
	}
}

// sight looks, if it is time to.
func (r *run) sight(ctx context.Context) {
	all := r.lasting()
	begin := time.Now()
	if len(all) == 0 || begin.Before(r.looks) || begin.Before(r.notSoon) {
		return
	}
	call, cancel := context.WithTimeout(ctx, r.config.RenewTimeout)
	defer cancel()
	v, err := all[rand.IntN(len(all))].Look(call, r.seen.Version)
	r.looks = time.Now().Add(jitter(r.config.LookInterval))
	if !r.outcome("looking", err) {
		return
	}
	r.mu.Lock()
	r.stats.Looks++
	if v.Version == 0 || v.Version != r.seen.Version {
		r.stats.Members = len(v.Members)
	}
	r.mu.Unlock()
	if r.view == nil || v.Version == 0 || v.Version != r.seen.Version {
		r.seen, r.view = v, r.shards.View(v)
	}
	r.notSoon = time.Now().Add(time.Since(begin)) // looking takes half of the time at most
}

// outcome reports why a call of the backend failed, each reason in a row once.
func (r *run) outcome(doing string, err error) (ok bool) {
	if r.problems == nil {
		r.problems = map[string]string{}
	}
	switch {
	case err == nil:
		delete(r.problems, doing)
	case r.ctx.Err() != nil && !r.leaving || r.problems[doing] == err.Error():
	default:
		r.problems[doing] = err.Error()
		r.failed(doing, err)
	}
	return err == nil
}

// jitter varies a time by a fifth, so that nodes do not look in step.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
