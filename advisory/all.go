package advisory

import (
	"context"

	"github.com/pglatch/pglatch/namespace"
)

// AcquireAll takes the locks on all keys, or none: one Lock, and without Config.Multiplex one connection. It
// takes them in a fixed order, whatever the order of the arguments, so that two
// calls never deadlock; equal keys count once. The wait, of at most the Locker's
// Timeout, is for all together, and each waiting call has a connection (without Config.Multiplex). No key, or an invalid one, is an error that
// matches namespace.ErrInvalidKey; other errors are those of Acquire.
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
	r.lock.keys = keys
	lock, err := l.core.acquireAll(ctx, r, keys)
	l.core.traceAcquire(ctx, r, result{err: err})
	return lock, err
}

func (c *core) acquireAll(ctx context.Context, r *request, keys []namespace.Key) (*Lock, error) {
	b, err := c.build(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if err := b.take(key, r.mode); err != nil {
			return nil, b.abort(err)
		}
	}
	return b.finish()
}
