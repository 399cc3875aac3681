package advisory

import (
	"context"

	"github.com/pglatch/pglatch/namespace"
)

// AcquireAll takes the locks on all keys, or none, as one Lock. It takes them in a fixed order,
// whatever the order of the arguments, so two calls never deadlock. Equal keys count once. The wait
// covers all keys together and is at most the Locker's Wait. With one lock per connection, a call
// takes all its keys on one connection, and occupies that connection while it waits. If there is no
// key, or an invalid one, the error matches namespace.ErrInvalidKey. Other errors are those of
// Acquire.
func (l *Locker) AcquireAll(ctx context.Context, keys ...namespace.Key) (*Lock, error) {
	keys, err := inOrder(keys)
	if err != nil {
		return nil, err
	}
	if len(keys) == 1 {
		return l.Acquire(ctx, keys[0])
	}
	r, err := l.request(ctx, keys[0])
	if err != nil {
		return nil, err
	}
	defer r.free()
	returns := false
	defer func() {
		if !returns {
			l.core.deserted(r)
		}
	}()
	r.lock.keys = keys
	err = l.core.acquireAll(ctx, r)
	l.core.traceAcquire(ctx, r, err)
	returns = true
	if err != nil {
		return nil, err
	}
	return r.lock, nil
}

// acquireAll takes the keys of the request's lock one after the other. If one cannot be had, the
// others are given back in the background, because a canceled caller does not wait for that.
func (c *core) acquireAll(ctx context.Context, r *request) error {
	l := r.lock
	r.begin(c.present())
	for i, key := range l.keys {
		one := newAcquire(l, key, r.wait)
		one.start, one.Part, one.partial = r.start, true, l.keys[:i]
		one.Deadline = r.Deadline
		if _, err := c.acquire(ctx, one); err != nil {
			c.giveUp(l)
			return err
		}
	}
	if ctx.Err() != nil {
		c.giveUp(l)
		return canceled(ctx, r.name)
	}
	c.mu.Lock()
	lost := c.table.Complete(&l.hold, c.present())
	if lost == nil {
		c.began()
	}
	c.mu.Unlock()
	if lost != nil {
		c.giveUp(l)
		return c.explain(r, lost)
	}
	return nil
}
