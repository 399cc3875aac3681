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

// mode is that of the Locker's options.
func (o Options) mode() session.Mode {
	if o.Shared {
		return session.Shared
	}
	return session.Exclusive
}

// wait returns the bound of a wait, NoTimeout for none.
func (l *Locker) wait() (time.Duration, error) {
	switch {
	case l.options.Wait < 0:
		return 0, &ConfigError{"Options.Wait", l.options.Wait, "use a positive duration, 0 for the Locker's Timeout, or NoTimeout"}
	case l.options.Wait > 0:
		return l.options.Wait, nil
	}
	return l.core.config.Timeout, nil
}

// newLock returns a lock that nothing was granted to yet.
func (l *Locker) newLock(ctx context.Context, key namespace.Key) *Lock {
	lock := &Lock{core: l.core, label: l.options.Label, mode: l.options.mode(), parent: ctx}
	lock.key[0] = key
	lock.keys, lock.grants = lock.key[:], lock.room[:0]
	return lock
}

// request validates a call and returns its request.
func (l *Locker) request(ctx context.Context, key namespace.Key) (*request, error) {
	if err := valid(key); err != nil {
		return nil, err
	}
	wait, err := l.wait()
	if err != nil {
		return nil, err
	}
	return newRequest(l.newLock(ctx, key), key, wait), nil
}

func valid(key namespace.Key) error {
	if key.Valid() {
		return nil
	}
	return &namespace.Error{Sentinel: namespace.ErrInvalidKey, Value: key.String(), Reason: "it is the zero Key, or made by the zero Namespace"}
}

func newRequest(lock *Lock, key namespace.Key, wait time.Duration) *request {
	r, ok := lock.core.requests.Get().(*request)
	if !ok {
		r = new(request)
	}
	r.lock, r.key, r.mode, r.start = lock, key, lock.mode, lock.core.now()
	if wait != NoTimeout {
		r.deadline = r.start.Add(wait)
	}
	return r
}

// acquire gets a request its lock or its error.
func (c *core) acquire(ctx context.Context, r *request) (*Lock, error) {
	lock, res := r.lock, c.submit(ctx, r)
	if res.err == nil && ctx.Err() != nil { // both are ready: cancellation wins, and the lock goes back
		c.background(func() { _ = c.release(lock) })
		res.err = canceled(ctx, r.key)
	}
	c.traceAcquire(ctx, r, res)
	if !r.known && !r.nested && (res.err == nil || !r.queued) { // then nobody else knows of it
		r.free()
	}
	if res.err != nil {
		return nil, res.err
	}
	return lock, nil
}

// free lets a request be used again.
func (r *request) free() {
	select {
	case <-r.done: // a signal that came when its waiter looked for itself
	default:
	}
	pool := &r.lock.core.requests
	*r = request{spare: r.spare, done: r.done}
	pool.Put(r)
}

// submit queues a request and returns its result.
func (c *core) submit(ctx context.Context, r *request) result {
	if ctx.Err() != nil {
		return result{err: canceled(ctx, r.key)}
	}
	if r.spare == nil {
		r.spare = new(queue)
	}
	c.mu.Lock()
	k, err := c.enqueue(ctx, r)
	ahead := -1
	if k == nil && err == nil && !r.settled {
		ahead = len(r.queue.requests) - 1
		c.listen(r)
	}
	c.mu.Unlock()
	switch {
	case errors.Is(err, errTaken):
		return result{err: c.heldError(r)}
	case errors.Is(err, errNoSlot):
		return result{err: c.explain(r, err)}
	case err != nil:
		return result{err: err}
	case k != nil:
		if k.first(ctx, r) && !r.nested {
			return r.result
		}
	case ahead >= 0:
		c.traceWait(ctx, r, ahead)
	}
	return c.await(ctx, r)
}

// errTaken: a try found the key taken, or asked for, by this process.
var errTaken = errors.New("taken")

// enqueue lets a request join a shared lock or stand in line, under mu. If the
// request is first and the key must come from the server, the campaign that it
// returns is the caller's to drive.
func (c *core) enqueue(ctx context.Context, r *request) (*campaign, error) {
	if c.closed {
		return nil, closedError(r.key)
	}
	if err := c.reentrant(ctx, r); err != nil {
		return nil, err
	}
	q := c.queue(r.key.Tag(), r.spare)
	if r.queue = q; q == r.spare {
		r.spare = nil
	}
	defer c.tidy(q)
	if len(q.grants) > 0 && r.mode == session.Shared {
		now := time.Now()
		if g := c.joinable(q, r, now); g != nil {
			g.give(r, true, now)
			return nil, nil
		}
	}
	mustWait := len(q.requests) > 0 || q.campaign != nil || !q.compatible(r.mode)
	switch {
	case mustWait && r.try:
		return nil, errTaken
	case mustWait && r.nested && q.campaign != nil && q.campaign.session == nil && !q.campaign.dialing.Load() && c.full():
		return nil, errNoSlot // it would wait behind one that waits for a connection
	case mustWait:
		if err := c.deadlock(r); err != nil {
			return nil, err
		}
	}
	if r.nested {
		c.nested[r] = struct{}{}
	}
	q.requests = append(q.requests, r)
	r.queued = true
	if mustWait {
		return nil, nil
	}
	return c.begin(q), nil
}

// await returns the request's result, or takes the request back when its context
// or its time ends.
func (c *core) await(ctx context.Context, r *request) result {
	if r.nested {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.nested, r)
		}()
	}
	if !r.awaited { // its campaign was the caller's to begin
		c.mu.Lock()
		if r.settled {
			defer c.mu.Unlock()
			return r.result
		}
		c.listen(r)
		c.mu.Unlock()
	}
	c.stats.waiting.Add(1)
	defer c.stats.waiting.Add(-1)
	settled := false
	select {
	case settled = <-r.done:
	case <-ctx.Done():
	}
	if settled {
		return r.result
	}
	taken, starved := c.withdraw(r)
	if !taken {
		return r.result // it was settled in the same instant
	}
	return result{err: c.gaveUp(ctx, r, starved)}
}

// listen has a request that is to be awaited signaled, under mu: when it is settled,
// or its time is over.
func (c *core) listen(r *request) {
	if r.done == nil {
		r.done = make(chan bool, 1)
	}
	r.awaited = true
	c.expect(r)
}

// withdraw takes a request out of its queue; false if it was served already. The
// last one to leave stops the campaign. starved says why it had no connection, if
// that was so.
func (c *core) withdraw(r *request) (taken bool, starved error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.settled {
		return false, nil
	}
	c.alarm.forget(r)
	q := r.queue
	wasFirst := q.first() == r
	if !q.remove(r) {
		return false, nil
	}
	if k := q.campaign; k != nil {
		if k.session == nil && len(q.grants) == 0 {
			starved = cmp.Or(k.loss, errNoSlot)
			if k.loss == nil && k.dialing.Load() {
				starved = context.DeadlineExceeded
			}
		}
		switch next := q.first(); {
		case next == nil || k.own != nil && k.own == r.own:
			k.stop()
		case wasFirst && next.mode != r.mode && k.session != nil:
			k.session.Interrupt() // it may wait in the mode of the one that left
		}
	}
	c.proceed(q) // the next may be compatible with what is held
	c.tidy(q)
	return true, starved
}

// gaveUp is the error of a request that was withdrawn. A canceled caller gets it
// at once; one whose time ran out also learns who holds the lock.
func (c *core) gaveUp(ctx context.Context, r *request, starved error) error {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return canceled(ctx, r.key)
	}
	if starved != nil {
		return c.explain(r, starved)
	}
	holder := c.holder(r.key.Tag())
	return &TimeoutError{Key: r.key, Waited: time.Since(r.start), Holder: holder, Cause: context.Cause(ctx), held: true}
}

// explain types an error of a session for one request. Not under mu: the context
// of a lock looks at its lock.
func (c *core) explain(r *request, err error) error {
	ctx, waited := r.lock.parent, time.Since(r.start)
	switch {
	case isHeld(err):
		return err
	case c.ctx.Err() != nil:
		return closedError(r.key)
	case errors.Is(ctx.Err(), context.Canceled):
		return canceled(ctx, r.key)
	case errors.Is(err, errNoSlot), errors.Is(err, session.ErrNoSession):
		e := &PoolExhaustedError{Key: r.key, MaxConns: c.config.MaxConns, Waited: waited, Cause: context.Cause(ctx)}
		if r.nested {
			c.mu.Lock()
			e.Outer = c.heldBy(r)
			c.mu.Unlock()
		}
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("advisory: lock %v: %w: no connection within %v: %w", r.key, ErrUnavailable, waited.Round(time.Millisecond), err)
	case errors.Is(err, ErrLockTableFull):
		return c.tableFull(r.key, err)
	case errors.Is(err, ErrLost):
		return fmt.Errorf("advisory: lock %v: %w: the connection ended: %w", r.key, ErrUnavailable, errors.Unwrap(err))
	}
	return fmt.Errorf("advisory: lock %v: %w", r.key, err)
}
