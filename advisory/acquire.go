package advisory

import (
	"cmp"
	"context"
	"fmt"

	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// request validates a call and returns its request.
func (l *Locker) request(ctx context.Context, key namespace.Key) (*request, error) {
	if err := valid(key); err != nil {
		return nil, err
	}
	if l.core == nil {
		return nil, fmt.Errorf("advisory: lock %v: it is the zero Locker, which Open did not make: %w", key, ErrClosed)
	}
	if l.options.Wait < 0 {
		return nil, &ConfigError{"Options.Wait", l.options.Wait, "use a positive duration, 0 for Config.Wait, or NoTimeout"}
	}
	lock := newLock(ctx, l.core, l.options)
	lock.key[0] = key
	lock.keys = lock.key[:]
	return newAcquire(lock, key, cmp.Or(l.options.Wait, l.core.config.Wait)), nil
}

func valid(key namespace.Key) error {
	if key.Valid() {
		return nil
	}
	return &namespace.Error{Sentinel: namespace.ErrInvalidKey, Value: key.String(), Reason: "it is the zero Key, or made by the zero Namespace"}
}

// acquire gets a request its lock or its error, and frees the request. While the caller waits, it drives the
// connection that its key is requested on, unless another goroutine does.
func (c *core) acquire(ctx context.Context, r *request) (*Lock, error) {
	defer r.free()
	returns := false
	defer func() {
		if !returns {
			c.deserted(r)
		}
	}()
	lock, err := r.lock, error(nil)
	if ctx.Err() != nil {
		err = canceled(ctx, r.name)
	} else {
		r.ended = ctx.Done()
		err = c.reentrantAbroad(r)
		c.mu.Lock()
		if err == nil {
			err = c.enter(r)
		}
		if err != nil {
			c.mu.Unlock()
			err = c.explain(r, err)
		} else if c.await(r) { // unlocks mu
			err = c.explain(r, r.Err())
		} else {
			err = c.gaveUp(ctx, r)
		}
	}
	if r.Part { // acquireAll checks and traces the whole
		returns = true
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
	returns = true
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// deserted clears away a request and its lock whose caller does not return. A context and a Tracer are code of the
// program, which can panic or end the goroutine. They are never called under mu.
func (c *core) deserted(r *request) {
	c.mu.Lock()
	if !r.Settled() {
		_ = c.table.Withdraw(&r.Request, c.present())
		c.forget(r)
		c.run()
	}
	c.handOn(r)
	c.mu.Unlock()
	c.giveUp(r.lock)
}

// enter puts a request in the queue of its key and carries out everything that can be done at once. It is
// called under mu, which it may release meanwhile.
func (c *core) enter(r *request) error {
	if r.Mode == session.Shared { // it may join the holders of the lock
		if n := c.table.Joins(r.Tag, c.present()); n != nil {
			c.lookAt([]*locktable.Conn{n})
		}
	}
	c.database.add(r)
	now := c.present()
	r.begin(now)
	err := c.table.Enter(&r.Request, now)
	if err == nil && !r.Settled() {
		err = c.table.Broken() // a broken table may not have queued it
	}
	if err != nil {
		c.database.forget(r)
		err = c.translate(r, err)
	}
	c.run()
	if k := r.Key(); k != nil {
		notePending(k.Conn())
	}
	return err
}
