package advisory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// request validates a call and returns its request.
func (l *Locker) request(ctx context.Context, key namespace.Key) (*request, error) {
	if err := valid(key); err != nil {
		return nil, err
	}
	if l.options.Wait < 0 {
		return nil, &ConfigError{"Options.Wait", l.options.Wait, "use a positive duration, 0 for the Locker's Timeout, or NoTimeout"}
	}
	lock := &Lock{core: l.core, label: l.options.Label, mode: l.options.mode(), parent: ctx} // nothing is granted to it yet
	lock.key[0] = key
	lock.keys, lock.on, lock.conns = lock.key[:], lock.room[:0], lock.connRoom[:0]
	return newRequest(lock, key, cmp.Or(l.options.Wait, l.core.config.Timeout)), nil
}

func valid(key namespace.Key) error {
	if key.Valid() {
		return nil
	}
	return &namespace.Error{Sentinel: namespace.ErrInvalidKey, Value: key.String(), Reason: "it is the zero Key, or made by the zero Namespace"}
}

// mode is that of the Locker's options.
func (o Options) mode() session.Mode {
	if o.Shared {
		return session.Shared
	}
	return session.Exclusive
}

func newRequest(lock *Lock, key namespace.Key, wait time.Duration) *request {
	r, ok := lock.core.requests.Get().(*request)
	if !ok {
		r = new(request)
	}
	r.lock, r.name, r.mode, r.start = lock, key, lock.mode, lock.core.now()
	if wait != NoTimeout {
		r.deadline = r.start.Add(wait)
	}
	return r
}

// acquire gets a request its lock or its error, and forgets the request. The caller who
// sleeps meanwhile drives the connection that its key is asked on, unless somebody does.
func (c *core) acquire(ctx context.Context, r *request) (*Lock, error) {
	defer r.free()
	lock, err := r.lock, error(nil)
	if ctx.Err() != nil {
		err = canceled(ctx, r.name)
	} else {
		c.mu.Lock()
		if err = c.enqueue(ctx, r); err != nil {
			c.mu.Unlock()
			err = c.explain(r, err)
		} else if c.await(ctx, r) { // unlocks mu
			err = c.explain(r, r.err)
		} else {
			err = c.gaveUp(ctx, r)
		}
	}
	if r.part { // the whole is for acquireAll to check and to tell
		return lock, err
	}
	if err == nil && ctx.Err() != nil { // both are ready: cancellation wins, and the lock goes back
		c.giveUp(lock)
		err = canceled(ctx, r.name)
	}
	if err == nil && c.config.Answer.AllowDump {
		c.noteTaker(lock)
	}
	c.traceAcquire(ctx, r, err)
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// errTaken: a try found the key taken.
var errTaken = errors.New("taken")

// enqueue puts a request in the queue of its key, under mu, and has done what can be done
// at once.
func (c *core) enqueue(ctx context.Context, r *request) error {
	if c.closed {
		return ErrClosed
	}
	if err := c.reentrant(c.carried(ctx), r); err != nil {
		return err
	}
	if cause := r.lock.cause; cause != nil { // what it has is lost already
		return &session.LostError{Cause: cause}
	}
	k := c.key(r.name.Tag(), r.slots != nil)
	r.key = k
	if k.pool {
		k.gateTag = r.gateTag
	}
	mustWait := k.waiting > 0 || k.conflicts(r.mode) || k.phase == waiting
	var err error
	switch {
	case r.try && (k.conflicts(r.mode) || k.waiting > 0 && k.phase != starved && k.phase != pausing):
		err = errTaken
	case mustWait && r.nested && k.phase == starved && !c.yield():
		err = errNoConn // it would wait behind one that waits for a connection
	case mustWait:
		err = c.deadlock(r)
	}
	if err != nil {
		k.tidy()
		return err
	}
	for _, l := range r.outer {
		if l.inside == nil {
			l.inside = make(map[*request]struct{})
		}
		l.inside[r] = struct{}{}
	}
	if r.part {
		r.lock.pending = r
	}
	k.requests.push(&r.inQueue, r)
	k.waiting++
	if mustWait && r.try { // nobody may hold it: those before it have no connection
		k.tries = true
	} else if mustWait {
		r.tell(k.waiting - 1)
	}
	k.advance()
	if mustWait && k.phase == waiting && k.waiting == 1 {
		k.interrupt() // who waited for it is about to stop
	}
	return nil
}

// explain types an error of a session for one request. Not under mu: the context
// of a lock looks at its lock.
func (c *core) explain(r *request, err error) error {
	switch err.(type) { //nolint:errorlint // the error itself, and not something that it wraps
	case nil, *ReentrantError, *DeadlockError:
		return err
	}
	ctx, waited := r.lock.parent, time.Since(r.start)
	switch {
	case errors.Is(err, errTaken):
		return c.heldError(r)
	case c.ctx.Err() != nil:
		return closedError(r.name)
	case errors.Is(ctx.Err(), context.Canceled):
		return canceled(ctx, r.name)
	case errors.Is(err, errNoConn):
		e := &PoolExhaustedError{Key: r.name, MaxConns: c.config.MaxConns, Waited: waited, Cause: context.Cause(ctx)}
		if r.nested {
			c.mu.Lock()
			e.Outer = c.heldBy(r)
			c.mu.Unlock()
		}
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("advisory: lock %v: %w: no connection within %v: %w", r.name, ErrUnavailable, waited.Round(time.Millisecond), err)
	case errors.Is(err, ErrLockTableFull):
		return c.tableFull(r.name, err)
	case errors.Is(err, ErrLost):
		return fmt.Errorf("advisory: lock %v: %w: the connection ended: %w", r.name, ErrUnavailable, errors.Unwrap(err))
	}
	return fmt.Errorf("advisory: lock %v: %w", r.name, err)
}

// free lets a request be used again, of which nobody knows any more.
func (r *request) free() {
	pool := &r.lock.core.requests
	clear(r.outer)
	*r = request{wake: r.wake, outer: r.outer[:0]}
	pool.Put(r)
}
