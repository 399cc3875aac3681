package multiplex

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// An op is one operation on its way through a carrier.
type op struct {
	session.Op
	owner *Session
	wake  chan signal // at most two are under way: slow, and one of the others

	// guarded by carrier.mu
	done    bool
	leading bool // told to drive, or about to be
	poked   bool // told that it takes long
	left    bool // nobody waits for the answer
}

// A signal is what the one who waits for an op is told.
type signal uint8

const (
	isDone signal = iota
	isLead        // drive the carrier
	isSlow        // the server does not answer: it is time to look at the context
)

// newOp returns an op of the Source's pool. The pool is not the package's, because
// a channel of one testing/synctest bubble is of no use in another.
func newOp(v *Session, tag namespace.Tag, mode session.Mode, unlock bool) *op {
	o, ok := v.source.pool.Get().(*op)
	if !ok {
		o = &op{wake: make(chan signal, 2)}
	}
	wake := o.wake
	*o = op{Op: session.Op{Tag: tag, Mode: mode, Unlock: unlock}, owner: v, wake: wake}
	return o
}

// free lets the op be used again by another; nobody may know of it any more.
func (o *op) free() {
	pool := &o.owner.source.pool
	o.owner, o.Any, o.Err = nil, nil, nil
	pool.Put(o)
}

var (
	errTaken   = errors.New("held or in flight on this session")
	errGone    = errors.New("the session was given back") // it is not lost, and another one will do
	errLeft    = errors.New("no answer from the server in time")
	errNoReply = &session.LostError{Cause: errLeft}
)

// patience is how long who drives waits for an answer before others are told, and
// look at their contexts.
const patience = 100 * time.Millisecond

// do runs an operation together with those that arrive at the same time. After
// nil or the op's own error it is done. errTaken, errGone and a *LostError mean
// that nothing was done; errNoReply, when ctx or the deadline is over, that what
// is done will be undone.
func (c *carrier) do(ctx context.Context, deadline time.Time, o *op) error {
	c.mu.Lock()
	if err := c.admit(o); err != nil {
		c.mu.Unlock()
		return err
	}
	if c.busy {
		c.pending = append(c.pending, o)
		slow := c.slow.Load()
		c.mu.Unlock()
		if !slow {
			slow = c.await(o)
		}
		if slow {
			return c.awaitSlow(ctx, deadline, o)
		}
		return o.Err
	}
	c.busy = true
	if c.crowd > 1 { // the others of the last batch come, too
		c.pending = append(c.pending, o)
		o.leading = true // who ends the carrier leaves it to this goroutine to see that
		c.mu.Unlock()
		if !c.lead(o) {
			return c.awaitSlow(ctx, deadline, o)
		}
		return o.Err
	}
	c.batch.ops = append(c.batch.ops, o)
	c.mu.Unlock()
	if !c.drive(o) {
		return c.awaitSlow(ctx, deadline, o)
	}
	return o.Err
}

// await waits for the end of an op, or until it takes long.
func (c *carrier) await(o *op) (slow bool) {
	for {
		switch <-o.wake {
		case isDone:
			return false
		case isSlow:
			return true
		case isLead:
			return !c.lead(o)
		}
	}
}

// awaitSlow is await with an eye on the context.
func (c *carrier) awaitSlow(ctx context.Context, deadline time.Time, o *op) error {
	var expired <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		expired = timer.C
	}
	for {
		select {
		case signal := <-o.wake:
			if c.heard(o, signal) {
				return o.Err
			}
			continue
		case <-ctx.Done():
		case <-expired:
			past := make(chan time.Time)
			close(past)
			expired = past
		}
		if c.leave(o) {
			return errNoReply
		}
		if c.heard(o, <-o.wake) { // it is done, or about to drive
			return o.Err
		}
	}
}

// heard acts on a signal and reports whether the op is done.
func (c *carrier) heard(o *op, s signal) bool {
	return s == isDone || s == isLead && c.lead(o)
}
