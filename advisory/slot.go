package advisory

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// slotPause is how often the one waiter of all processes that may looks for a
// free slot; half of it is jitter.
const slotPause = 20 * time.Millisecond

// AcquireSlot takes one of n slots of the counting semaphore on key, 1 ≤ n ≤ 1000:
// at most n callers hold one at a time, in all processes. The semaphore and the
// mutex on one key have nothing to do with each other. A *TimeoutError names the holders. Processes that disagree on
// n get the largest n. Without Config.Multiplex each waiting call has a connection
// of the lock pool. key must belong to a namespace. A request for a slot of a
// semaphore that the context already has a slot of is re-entrant. Options.Shared
// has no meaning here and is an error. Other errors are those of Acquire.
func (l *Locker) AcquireSlot(ctx context.Context, key namespace.Key, n int) (*Lock, error) {
	if n < 1 || n > namespace.MaxSlots {
		return nil, &ConfigError{"n", n, "use 1 to 1000 slots"}
	}
	if l.options.Shared {
		return nil, &ConfigError{"Options.Shared", true, "a slot is held by one caller; use n for several"}
	}
	turnstile, err := key.Turnstile()
	if err != nil {
		return nil, err
	}
	r, err := l.request(ctx, key)
	if err != nil {
		return nil, err
	}
	r.lock.slotOf = key.Tag()
	lock, err := l.core.acquireSlot(ctx, r, turnstile, n)
	if timeout, ok := err.(*TimeoutError); ok { //nolint:errorlint // itself, not what it may wrap, such as the cause of ctx
		timeout.Slots, timeout.Holders = n, l.core.slotHolders(key, n)
	}
	l.core.traceAcquire(ctx, r, result{err: err})
	return lock, err
}

func (c *core) acquireSlot(ctx context.Context, r *request, turnstile namespace.Key, n int) (*Lock, error) {
	b, err := c.build(ctx, r)
	if err != nil {
		return nil, err
	}
	slots := make([]namespace.Key, n)
	for i := range slots {
		if slots[i], err = r.key.Slot(i); err != nil {
			return nil, b.abort(err)
		}
	}
	found, err := b.anyOf(slots)
	if err != nil {
		return nil, b.abort(err)
	}
	if !found {
		// All who wait pass the turnstile one by one, and only the one inside looks.
		if err := b.take(turnstile, session.Exclusive); err != nil {
			return nil, b.abort(ofSemaphore(r, err))
		}
		for !found {
			if err := c.pauseForSlot(ctx, r); err != nil {
				return nil, b.abort(err)
			}
			if found, err = b.anyOf(slots); err != nil {
				return nil, b.abort(err)
			}
		}
		if err := b.drop(turnstile, session.Exclusive); err != nil {
			return nil, b.abort(err)
		}
	}
	return b.finish()
}

// gaveUpSlot is gaveUp for a slot: no single holder is in the way.
func gaveUpSlot(ctx context.Context, r *request) error {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return canceled(ctx, r.key)
	}
	return &TimeoutError{Key: r.key, Waited: time.Since(r.start), Cause: context.Cause(ctx), held: true}
}

// ofSemaphore names the semaphore in place of its turnstile, whose holder is not
// the one to blame.
func ofSemaphore(r *request, err error) error {
	if timeout, ok := err.(*TimeoutError); ok { //nolint:errorlint // itself, not what it may wrap, such as the cause of ctx
		return &TimeoutError{Key: r.key, Waited: timeout.Waited, Cause: timeout.Cause, held: true}
	}
	return err
}

// anyOf takes a free slot, from a random one on, so that callers spread. Slots
// that this process holds are not asked for; when it holds all, the question
// still tells the server that the session lives.
func (b *builder) anyOf(slots []namespace.Key) (bool, error) {
	c := b.core
	from := rand.IntN(len(slots))
	candidates := slices.Concat(slots[from:], slots[:from])
	c.mu.Lock()
	candidates = slices.DeleteFunc(candidates, func(k namespace.Key) bool { return c.queues[k.Tag()] != nil })
	c.mu.Unlock()
	tags := make([]namespace.Tag, len(candidates))
	for i, k := range candidates {
		tags[i] = k.Tag()
	}
	stop := b.request.hurriesAlways(b.ctx, b.session)
	i, err := b.session.TryAny(tags)
	stop()
	switch {
	case errors.Is(err, context.Canceled) && c.ctx.Err() == nil: // behind others who look
		return false, gaveUpSlot(b.ctx, b.request)
	case err != nil:
		return false, c.explain(b.request, err)
	case i < 0:
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queue(tags[i], new(queue))
	g := q.grant(b.session, session.Exclusive, time.Now())
	g.addUser(b.lock)
	b.lock.keys = []namespace.Key{candidates[i]}
	return true, nil
}

// pauseForSlot waits before the next look.
func (c *core) pauseForSlot(ctx context.Context, r *request) error {
	pause := slotPause/2 + rand.N(slotPause/2)
	if !r.deadline.IsZero() && time.Until(r.deadline) < pause {
		return &TimeoutError{Key: r.key, Waited: time.Since(r.start), held: true}
	}
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return gaveUpSlot(ctx, r)
	case <-c.ctx.Done():
		return closedError(r.key)
	}
}
