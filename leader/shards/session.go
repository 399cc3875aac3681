package shards

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
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

	// The driving goroutine owns these fields.
	busy      bool          // a call is under way
	announced driver.Member // the node as last announced
	claims    []string      // free shards to claim
	expected  []string      // shards that others own and should give up to this node
	hope      bool          // some of the expected shards may be free
	hoped     bool          // the last call claimed some of the expected shards
	fulfilled int           // how many of them it got
	claiming  int           // how many shards the present call claims
	most      int           // maximum number of shards in one claim
	undo      []string      // to be released after a claim
	releases  []*ownership  // to be released

	// The fields below are guarded by the Node's mu.
	owned  map[string]*ownership
	over   bool // lost, or left in good order
	closes time.Time
}

// newSession begins to renew a session whose Open began at from.
func (n *Node) newSession(s driver.Session, self driver.Member, from boottime.Moment) *session {
	o := &session{Session: s, node: n, announced: self, most: batch, kept: make(chan struct{}), owned: map[string]*ownership{}}
	o.until.Set(from.Add(n.config.trust()))
	ctx, stop := context.WithCancel(context.Background())
	o.stop = stop
	go o.keep(ctx)
	return o
}

// lasts reports whether the node owns the session's shards. The caller holds the Node's mu.
func (o *session) lasts() bool { return !o.over && !o.until.Passed() }

// keep renews the session until ctx ends or it is lost.
func (o *session) keep(ctx context.Context) {
	defer close(o.kept)
	k := &keeper{session: o, results: make(chan renewal, 1)}
	if cause := k.run(ctx); cause != nil {
		o.lose(cause)
	}
	if k.cancel != nil { // a renewal is under way
		k.cancel()
		<-k.results
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
	o.over = true
	o.closes = time.Now()
	if !errors.Is(cause, leader.ErrLost) {
		o.closes = o.closes.Add(n.config.LossDrain)
	}
	for _, each := range o.owned {
		n.loseLocked(each, cause)
	}
	n.noteLocked(Event{Kind: EventError, Err: fmt.Errorf("a session was lost: %w", cause)})
	notify(n.wake)
}

// A renewal is the outcome of one Renew.
type renewal struct {
	lost []string
	err  error
}

// A keeper renews a session.
type keeper struct {
	*session
	results chan renewal
	sent    boottime.Moment    // start of the present renewal
	cancel  context.CancelFunc // cancels that renewal; nil = none under way
	last    error              // of the last renewal
}

// run returns nil when ctx ends, or the reason why the session is lost.
func (k *keeper) run(ctx context.Context) error {
	config := &k.node.config
	next := time.NewTimer(config.RenewInterval)
	defer next.Stop()
	expiry := time.NewTimer(k.until.Moment().Until())
	defer expiry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.Lost():
			return fmt.Errorf("the backend ended it: %w", leader.ErrLost)
		case <-k.Changed():
			notify(k.node.look)
		case <-expiry.C:
			if left := k.until.Moment().Until(); left > 0 {
				expiry.Reset(left)
				continue
			}
			return k.expired()
		case <-next.C:
			if k.until.Passed() { // the process was stopped, or the machine suspended
				return k.expired()
			}
			k.renew()
		case r := <-k.results:
			k.cancel()
			k.cancel = nil
			pause, err := k.judge(r)
			if err != nil {
				return err
			}
			next.Reset(pause)
		}
	}
}

func (k *keeper) renew() {
	config := &k.node.config
	var ctx context.Context
	ctx, k.cancel = context.WithTimeout(context.Background(), config.RenewTimeout)
	k.sent = boottime.Present()
	go func() {
		lost, err := k.Renew(ctx, config.LeaseDuration)
		k.results <- renewal{lost, err}
	}()
}

// judge returns the delay before the next renewal, or the error that ends the session.
func (k *keeper) judge(r renewal) (time.Duration, error) {
	n := k.node
	k.drop(r.lost)
	switch {
	case r.err == nil:
		if !k.until.Extend(k.sent.Add(n.config.trust())) {
			return 0, k.expired() // it came too late
		}
		k.last = nil
		return max(n.config.RenewInterval-time.Since(k.sent.Mono), 0), nil
	case errors.Is(r.err, leader.ErrLost):
		return 0, r.err
	}
	k.last = r.err
	n.failed("renewing", r.err)
	return n.config.RenewInterval / 5, nil
}

// drop ends the ownership of shards that were lost one by one.
func (k *keeper) drop(names []string) {
	n := k.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range names {
		if o := k.owned[name]; o != nil {
			n.loseLocked(o, leader.ErrLost)
		}
	}
	if len(names) > 0 {
		notify(n.wake)
	}
}

// expired returns the error for a loss at the deadline, with the last renewal's error.
func (k *keeper) expired() error {
	if k.last != nil {
		return fmt.Errorf("%w: %w", errExpired, k.last)
	}
	return errExpired
}
