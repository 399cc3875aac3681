package multiplex

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A carrier is a real session that tries and unlocks for many virtual ones.
type carrier struct {
	line    *line
	session session.Session
	idle    *time.Timer

	mu      sync.Mutex
	busy    bool        // somebody drives; for ever once it is closed
	slow    atomic.Bool // its statement takes long
	closed  error       // errGone or a *LostError; nil = open
	pending []*op
	// holders has the owner of each key that is held or in flight on the session: it
	// must never be tried again there.
	holders map[namespace.Tag]*Session

	locks        int    // that count against the cap
	rounds, seen uint64 // round trips, and those that the idle timer has seen
	armed        bool   // the idle timer runs
	watched      bool   // the session is under watch
	answered     bool   // the server answered at least once

	attended atomic.Bool // watched, or perhaps busy: who sees true need not look under mu

	// of who drives
	crowd int // who waited for the last batch, or was in it
	batch *batch
	args  []*session.Op
}

const (
	// idleAfter is how long a carrier does nothing before it is watched, or given back
	// if nothing is held on it. No operation pays for a timer: it runs while there is
	// traffic.
	idleAfter = 5 * time.Millisecond
	// maxBatch bounds the time that a batch takes, and the room in the socket's buffers
	// that it needs.
	maxBatch = 1024
)

// newCarrier makes a carrier and puts it in its line, under line.mu.
func newCarrier(l *line, s session.Session) *carrier {
	c := &carrier{line: l, session: s, batch: new(batch), holders: make(map[namespace.Tag]*Session)}
	l.source.wg.Add(1) // until finish
	c.mu.Lock()        // a tick that gives the carrier back at once finds it in its place
	defer c.mu.Unlock()
	c.idle = time.AfterFunc(idleAfter, c.tick)
	c.armed = true
	c.rounds = 1 // so that who connected it comes before the tick that gives it back
	l.current.Store(c)
	return c
}

// admit lets an operation in, under mu. A try reserves its key.
func (c *carrier) admit(o *op) error {
	switch {
	case c.closed != nil:
		return c.closed
	case o.Unlock, o.Ping:
		return nil
	case o.Any != nil:
		return c.admitAny(o)
	}
	if _, taken := c.holders[o.Tag]; taken {
		return errTaken
	}
	if err := c.reserve(); err != nil {
		return err
	}
	c.holders[o.Tag] = o.owner
	return nil
}

// reserve counts one lock, under mu.
func (c *carrier) reserve() error {
	err := c.line.source.reserve(1)
	if err == nil {
		c.locks++
	}
	return err
}

func (c *carrier) unreserve() {
	c.locks--
	c.line.source.used.Add(-1)
}

// admitAny keeps the keys that can be tried.
func (c *carrier) admitAny(o *op) error {
	var free []namespace.Tag
	for _, tag := range o.Any {
		if _, taken := c.holders[tag]; !taken {
			free = append(free, tag)
		}
	}
	if len(free) == 0 {
		return errTaken
	}
	if err := c.reserve(); err != nil {
		return err
	}
	for _, tag := range free {
		c.holders[tag] = o.owner
	}
	o.Any = free
	return nil
}

// drop forgets the key of an op, or those of Any, under mu.
func (c *carrier) drop(o *op) {
	delete(c.holders, o.Tag)
	for _, tag := range o.Any {
		delete(c.holders, tag)
	}
	c.unreserve()
}

// complete hands out the results of the batch and lets the next one begin.
func (c *carrier) complete(self *op, err error) {
	c.mu.Lock()
	c.slow.Store(false)
	c.rounds++
	c.watched = false // the statement has ended the watch
	var tell []*Session
	switch {
	case err != nil:
		tell = c.end(err)
	case c.closed != nil: // meanwhile, by another goroutine
		err = c.closed
	default:
		c.answered = true
	}
	done := c.batch
	c.crowd = len(done.ops) + len(c.pending)
	for _, o := range done.ops {
		c.settle(o, err)
	}
	c.batch = batches.Get().(*batch)
	closed := c.closed != nil
	var leader *op
	orphans := false // nobody waits for what is pending
	if !closed {
		leader, orphans = c.next()
	}
	c.mu.Unlock()
	for _, o := range done.ops {
		if o != self && o.wake != nil {
			o.wake <- isDone
		}
	}
	if leader != nil {
		leader.wake <- isLead
	}
	clear(done.ops)
	done.ops = done.ops[:0]
	batches.Put(done)
	switch {
	case closed:
		c.finish(tell)
	case orphans:
		c.line.source.wg.Go(func() { c.lead(nil) })
	}
}

// next chooses who drives the next batch, under mu, or lets the carrier be idle.
func (c *carrier) next() (leader *op, orphans bool) {
	for _, o := range c.pending {
		if o.wake != nil {
			o.leading = true
			return o, false
		}
	}
	if len(c.pending) > 0 {
		return nil, true
	}
	c.busy = false
	c.attended.Store(false)
	if !c.armed {
		c.armed = true
		c.idle.Reset(idleAfter)
	}
	return nil, false
}

// settle books the result of one op, under mu.
func (c *carrier) settle(o *op, err error) {
	o.done = true
	switch {
	case err != nil:
		o.Held, o.Err = false, err
		return // end has forgotten the key
	case o.Ping:
		return
	case o.Unlock || !o.Held:
		c.drop(o)
		return
	case o.Any != nil:
		o.Tag = o.Any[o.Index]
		for _, tag := range o.Any {
			if tag != o.Tag {
				delete(c.holders, tag)
			}
		}
	}
	if o.left {
		c.pending = append(c.pending, &op{Op: session.Op{Tag: o.Tag, Mode: o.Mode, Unlock: true}, owner: o.owner})
	}
}

// leave takes an op back whose caller waits no longer. false: it is done, or its
// caller is to drive, and a signal is under way.
func (c *carrier) leave(o *op) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.done || o.leading {
		return false
	}
	for i, p := range c.pending {
		if p != o {
			continue
		}
		c.pending = append(c.pending[:i], c.pending[i+1:]...)
		c.drop(o)
		return true
	}
	o.left, o.wake = true, nil
	return true
}
