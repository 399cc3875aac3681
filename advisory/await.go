package advisory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/namespace"
)

// grace is how long a caller whose time is over waits for an answer that is on its way. An answer is more
// informative than a timeout.
const grace = 200 * time.Millisecond

// await returns true when the request is settled. It returns false when the request was withdrawn because its
// context or its time ended, or because it is chosen to end a deadlock. await is called under mu, and unlocks
// it.
func (c *core) await(r *request) (settled bool) {
	canceled := false
	for !r.Settled() {
		switch {
		case r.drives != nil:
			n := r.drives
			r.drives = nil
			n.drive(false)
		case r.line > 0:
			ahead := r.line - 1
			r.line = 0
			c.mu.Unlock()
			c.traceWait(r, ahead)
			c.mu.Lock() // unless traceWait ends the goroutine
		case r.searches:
			r.searches = false
			c.unlocked(func() { c.database.search(r) })
		case r.place == expired && !canceled && r.deadlock == nil && r.answerIsDue():
			r.place = 0
			r.Deadline = c.present() + grace
		case canceled || r.place == expired || r.deadlock != nil:
			r.reason = c.table.Withdraw(&r.Request, c.present())
			c.forget(r)
			c.run()
			c.handOn(r)
			c.mu.Unlock()
			return false
		default:
			canceled = c.sleep(r)
		}
	}
	c.handOn(r) // it may have been settled at the same moment
	c.mu.Unlock()
	return true
}

// handOn appoints another driver for the connection that the request was to drive, under mu.
func (c *core) handOn(r *request) {
	if n := r.drives; n != nil {
		r.drives = nil
		n.appoint()
	}
}

// sleep waits until the request is woken, under mu, which it releases meanwhile. It reports whether the
// context ended instead.
func (c *core) sleep(r *request) (canceled bool) {
	if r.wake == nil {
		r.wake = make(chan struct{}, 1)
	}
	c.expect(r)
	r.asleep = true
	c.mu.Unlock()
	if r.Key() != nil {
		c.stats.waiting.Add(1)
		defer c.stats.waiting.Add(-1)
	}
	if r.ended == nil {
		<-r.wake
		c.mu.Lock()
		return false
	}
	select {
	case <-r.wake:
		c.mu.Lock()
		return false
	case <-r.ended:
	}
	c.mu.Lock()
	if !r.asleep {
		<-r.wake
	}
	r.asleep = false
	return true
}

// gaveUp returns the error of a withdrawn request. A canceled caller gets it at once. If the time ran out,
// the error also names the holder.
func (c *core) gaveUp(ctx context.Context, r *request) error {
	if r.deadlock != nil {
		return r.deadlock
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return canceled(ctx, r.name)
	}
	if r.reason != nil {
		return c.explain(r, r.reason)
	}
	e := &TimeoutError{Key: r.name, Waited: r.waited(), Cause: context.Cause(ctx), held: true}
	if r.slots == nil {
		e.Holder, e.remark = c.holder(r.name.Tag())
		return e
	}
	e.Slots = len(r.slots)
	tags := make([]namespace.Tag, 0, maxHolders)
	for _, slot := range r.slots[:min(len(r.slots), maxHolders)] {
		tags = append(tags, slot.Tag())
	}
	e.Holders, e.remark = c.holders(tags)
	return e
}

// over returns why a wait is over: the cause of ctx, or the end of the Locker's Wait.
func over(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return context.DeadlineExceeded
}

// explain returns the typed error of one request for an error of a session or of the table. Do not call it
// under mu, because the context of a lock checks its lock.
func (c *core) explain(r *request, err error) error {
	switch err.(type) { //nolint:errorlint // the error itself, and not something that it wraps
	case nil, *reentrantError, *deadlockError:
		return err
	}
	ctx, waited := r.lock.parent, r.waited()
	switch {
	case errors.Is(err, locktable.ErrTaken):
		return c.heldError(r)
	case c.ctx.Err() != nil:
		return closedError(r.name)
	case errors.Is(ctx.Err(), context.Canceled):
		return canceled(ctx, r.name)
	case errors.Is(err, locktable.ErrNoConn):
		e := &poolExhaustedError{Key: r.name, MaxConns: c.config.MaxConns, Waited: waited, Cause: context.Cause(ctx)}
		if len(r.partial) > 0 || r.lock.around != nil {
			e.Outer = c.heldBy(r)
		}
		return e
	case errors.Is(err, locktable.ErrDialing), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("advisory: lock %v: %w: no connection within %v: %w", r.name, ErrUnavailable, waited.Round(time.Millisecond), over(ctx))
	case errors.Is(err, locktable.ErrNoReply):
		return fmt.Errorf("advisory: lock %v: %w: no answer from the server within %v: %w", r.name, ErrUnavailable, waited.Round(time.Millisecond), over(ctx))
	case errors.Is(err, ErrLockTableFull):
		return c.tableFull(r.name, err)
	case errors.Is(err, ErrLost):
		return fmt.Errorf("advisory: lock %v: %w: the connection ended: %w", r.name, ErrUnavailable, errors.Unwrap(err))
	}
	return fmt.Errorf("advisory: lock %v: %w", r.name, err)
}

// translate names the locks in an error of the table, under mu.
func (c *core) translate(r *request, err error) error {
	switch e := err.(type) { //nolint:errorlint // the table's own
	case *locktable.ReentrantError:
		held, _ := lockOf(e.Holder).has(r)
		return &reentrantError{Key: r.name, Held: held}
	case *locktable.DeadlockError:
		named := &deadlockError{}
		for _, w := range e.Cycle {
			named.Cycle = append(named.Cycle, requestOf(w).name)
		}
		return named
	}
	return err
}
