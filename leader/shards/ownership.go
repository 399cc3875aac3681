package shards

import (
	"context"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/shards/driver"
)

// An ownership is a shard that the node owns, from its claim until it is released or lost.
type ownership struct {
	shard   Shard
	session *session
	began   time.Time
	ctx     *boottime.Context
	cancel  context.CancelCauseFunc

	// The fields below are guarded by the Node's mu.
	giving  bool // to be released when its work has ended
	idle    bool // no work of it is running
	due     time.Time
	overdue bool      // its work did not end in time, and that was reported
	reason  error     // why it is given up, if not in order
	rests   error     // why its work is not running now; nil = it is running or done
	stale   time.Time // since when it is no longer owned, if its work still runs
}

// A shunning keeps the node from claiming a shard whose work failed too often here. The node does not claim
// it before until. If no other node would claim it, the limit is alone instead.
type shunning struct{ until, alone time.Time }

// longRun is how long work has to run so that its next failure counts as the first.
const longRun = time.Minute

// adopt begins the work on a granted shard, unless the session was lost meanwhile.
func (r *run) adopt(s *session, g driver.Grant) bool {
	o := &ownership{shard: Shard(g), session: s, began: time.Now()}
	base := context.WithoutCancel(r.ctx)
	if binder, ok := s.Session.(driver.Binder); ok {
		base = binder.Bind(base, g)
	}
	o.ctx, o.cancel = boottime.NewContext(base, s.expired)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !s.lasts() {
		o.cancel(leader.ErrLost)
		return false
	}
	s.owned[g.Name], r.owned[g.Name] = o, o
	r.noteLocked(Event{Kind: EventAcquired, Shard: o.shard})
	r.works.Go(func() { r.workOn(o) })
	return true
}

// workOn calls work, again after failures, until the context ends or work is done.
func (r *run) workOn(o *ownership) {
	returned := false
	defer func() {
		if !returned {
			r.giveAway(o, errNoReturn)
		}
		r.ended(o)
	}()
	r.attempt(o)
	returned = true
}

var errNoReturn = panicked(background.ErrGoexit)

func (r *run) attempt(o *ownership) {
	var last time.Duration
	first := time.Now() // start of the first counted attempt
	failures := 0
	for {
		began := time.Now()
		err := panicked(background.Call(func() error { return r.work(o.ctx, o.shard) }, func(error) {})) // workOn handles the end of the goroutine
		if err == nil || o.ctx.Err() != nil {
			return
		}
		if failures++; time.Since(began) >= longRun {
			failures, last, first = 1, 0, began
		}
		r.note(Event{Kind: EventWorkFailed, Shard: o.shard, Err: err})
		delay, again := r.config.Restart.NextDelay(backoff.Retry{Attempt: failures, Elapsed: time.Since(first), Last: last, Err: err})
		if !again {
			if !r.rest(o, err) {
				return
			}
			if pause.For(o.ctx, r.config.shun()) != nil {
				return
			}
			r.resume(o)
			failures, last, first = 0, 0, time.Now()
			continue
		}
		last = delay
		if pause.For(o.ctx, delay) != nil {
			return
		}
	}
}

// rest keeps a shard whose work failed too often, if it is pinned here or no other node would claim it.
// Otherwise it gives the shard away and returns false.
func (r *run) rest(o *ownership, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	why := ""
	switch {
	case r.known.pinned[o.shard.Name]:
		why = "it is pinned to this node"
	case !r.acceptedLocked(o.shard.Name):
		why = "no other node would claim it"
	default:
		r.giveAwayLocked(o, err)
		return false
	}
	o.rests = err
	r.noteLocked(Event{Kind: EventError, Err: fmt.Errorf("shards: %s of %s stays here, because %s: its work begins again in %v: %w",
		o.shard.Name, r.config.Name, why, r.config.shun(), err)})
	notify(r.wake)
	return true
}

func (r *run) resume(o *ownership) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.rests = nil
}

// unrest gives away resting shards that another node can now take.
func (r *run) unrest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, o := range r.owned {
		if o.rests != nil && !r.known.pinned[name] && r.acceptedLocked(name) {
			r.giveAwayLocked(o, o.rests)
		}
	}
}

// panicked makes the error of a function that did not return match leader.ErrPanic.
func panicked(err error) error {
	if background.DidNotReturn(err) {
		return fmt.Errorf("%w: %w", leader.ErrPanic, err)
	}
	return err
}

// ended records that no work of an ownership runs any more.
func (r *run) ended(o *ownership) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.idle = true
	if r.stale[o.shard.Name] == o {
		delete(r.stale, o.shard.Name)
	}
	if o.giving {
		r.ready = append(r.ready, o)
	}
	notify(r.wake)
}

// giveAway gives up a shard whose work cannot be kept running here.
func (r *run) giveAway(o *ownership, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.giveAwayLocked(o, err)
}

func (r *run) giveAwayLocked(o *ownership, err error) {
	if r.owned[o.shard.Name] != o || o.giving {
		return
	}
	r.stats.GaveAway++
	r.shunned[o.shard.Name] = &shunning{time.Now().Add(r.config.shun()), time.Now().Add(r.config.LeaseDuration)}
	r.giveLocked(o, fmt.Errorf("%w: %w", ErrGaveAway, err))
}

// giveLocked ends the context of an ownership. The shard is released when its work has ended.
func (n *Node) giveLocked(o *ownership, reason error) {
	if o.giving {
		return
	}
	o.giving, o.reason, o.due = true, reason, time.Now().Add(n.config.DrainTimeout)
	o.cancel(leader.ErrReleased)
	if o.idle {
		n.ready = append(n.ready, o)
	} else {
		n.drains = append(n.drains, o)
	}
	notify(n.wake)
}

// loseLocked ends an ownership that was taken away.
func (n *Node) loseLocked(o *ownership, cause error) {
	if n.owned[o.shard.Name] != o {
		return
	}
	err := &LostError{Group: n.config.Name, Shard: o.shard, Held: time.Since(o.began), Cause: cause}
	o.cancel(err)
	n.forgetLocked(o)
	n.gone = append(n.gone, o.shard.Name)
	n.noteLocked(Event{Kind: EventLost, Shard: o.shard, Err: err})
}

// releasedLocked ends an ownership that was released.
func (n *Node) releasedLocked(o *ownership) {
	if n.owned[o.shard.Name] != o {
		return // lost meanwhile
	}
	n.forgetLocked(o)
	n.gone = append(n.gone, o.shard.Name)
	n.noteLocked(Event{Kind: EventReleased, Shard: o.shard, Err: o.reason})
}

// forgetLocked removes an ownership from the lists. Work that still runs must end before the shard is claimed
// again.
func (n *Node) forgetLocked(o *ownership) {
	delete(n.owned, o.shard.Name)
	delete(o.session.owned, o.shard.Name)
	if !o.idle {
		o.stale = time.Now()
		n.stale[o.shard.Name] = o
	}
}

// drainExceeded returns the error for an ownership whose work did not end in time.
func (n *Node) drainExceeded(o *ownership) error {
	return fmt.Errorf("shards: %s of %s: %w", o.shard.Name, n.config.Name, leader.ErrDrainExceeded)
}
