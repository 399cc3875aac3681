package shards

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards/driver"
)

// A session carries a part of the node's shards. They are owned while it lasts, and lost with it.
type session struct {
	driver.Session
	node  *Node
	until boottime.Deadline // deadline of its shards, set by the last good renewal
	stop  context.CancelFunc
	kept  chan struct{} // closed when the keeper has ended
	began time.Time

	// The driving goroutine owns these fields.
	busy      bool          // a call is under way
	announced driver.Member // the node as last announced
	claims    []string      // free shards to claim
	claiming  int           // how many shards the present call claims
	most      int           // maximum number of shards in one claim
	undo      []string      // to be released after a claim
	releases  []*ownership  // to be released

	// The fields below are guarded by the Node's mu.
	owned   map[string]*ownership
	over    bool // lost, or left in good order
	ended   time.Time
	closes  time.Time
	slowest time.Duration // answer so far
}

// newSession begins to renew a session whose Open began at from.
func (n *Node) newSession(s driver.Session, self driver.Member, from boottime.Moment) *session {
	o := &session{Session: s, node: n, announced: self, most: batch, kept: make(chan struct{}), began: time.Now(), owned: map[string]*ownership{}}
	o.until.Set(from.Add(n.config.times().Trust()))
	ctx, stop := context.WithCancel(context.Background())
	o.stop = stop
	go o.keep(ctx, from)
	return o
}

// lasts reports whether the node owns the session's shards. The caller holds the Node's mu.
func (o *session) lasts() bool { return !o.over && !o.until.Passed() }

// expired ends the session if it can no longer be trusted, and returns why. The context of a shard calls it.
func (o *session) expired() error {
	if !o.until.Passed() {
		return nil
	}
	o.lose(renew.ErrExpired)
	return renew.ErrExpired
}

// keep renews the session until ctx ends or it is lost. from is the start of its Open.
func (o *session) keep(ctx context.Context, from boottime.Moment) {
	defer close(o.kept)
	config := &o.node.config
	k := renew.Keeper[renewal]{
		Rules: config.times().Rules(), Left: o.until.Left,
		Gone: o.Lost(), Judge: o.judge,
		Renew: func(ctx context.Context) renewal {
			defer o.timed(time.Now())
			lost, err := o.Renew(ctx, config.LeaseDuration)
			return renewal{lost, err}
		},
	}
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { o.watch(ctx) })
	cause := k.Run(ctx, from)
	if errors.Is(cause, renew.ErrEnded) {
		cause = fmt.Errorf("the backend ended it: %w", leader.ErrLost)
	}
	if cause != nil {
		o.lose(cause)
	}
	cancel()
	watch.Wait()
	k.Close()
}

// watch passes the backend's signals on to the node until ctx ends.
func (o *session) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-o.Changed():
			if !open {
				return
			}
			notify(o.node.look)
		}
	}
}

// lose ends the contexts of all shards of the session. If the backend is certain of the loss, the shards are
// already free for others. Otherwise work has LossDrain to end before the session is closed.
func (o *session) lose(cause error) {
	n := o.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if o.over {
		return
	}
	o.over, o.ended = true, time.Now()
	o.closes = o.ended
	if !errors.Is(cause, leader.ErrLost) {
		o.closes = o.closes.Add(n.config.LossDrain)
	}
	for _, each := range o.owned {
		n.loseLocked(each, cause)
	}
	n.noteLocked(Event{Kind: EventError, Err: fmt.Errorf("a session was lost: %w", cause)})
	notify(n.wake)
}

// timed records how long the backend took to answer, or has not answered.
func (o *session) timed(asked time.Time) {
	o.node.mu.Lock()
	defer o.node.mu.Unlock()
	o.slowest = max(o.slowest, time.Since(asked))
}

// A renewal is the outcome of one Renew.
type renewal struct {
	lost []string
	err  error
}

// judge records the answer to a renewal.
func (o *session) judge(r renewal, sent boottime.Moment) (renew.Event, error) {
	o.drop(r.lost)
	e, err := renew.Judge(r.err, &o.until, sent.Add(o.node.config.times().Trust()), leader.ErrLost)
	if e == renew.Failed {
		o.node.failed("renewing", err)
	}
	return e, err
}

// drop ends the ownership of shards that were lost one by one.
func (o *session) drop(names []string) {
	n := o.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range names {
		if owned := o.owned[name]; owned != nil {
			n.loseLocked(owned, leader.ErrLost)
		}
	}
	if len(names) > 0 {
		notify(n.wake)
	}
}
