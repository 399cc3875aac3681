package advisory

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A builder puts several keys on one session, all or nothing. Until finish or
// abort the session is its own: nobody watches it, and nothing on it is handed
// over.
type builder struct {
	core    *core
	ctx     context.Context
	lock    *Lock
	session session.Session
	request *request // carries the call's start and deadline
	taken   []namespace.Key
}

// build takes a session for the lock of a call whose first key is r's.
func (c *core) build(ctx context.Context, r *request) (*builder, error) {
	if ctx.Err() != nil {
		return nil, canceled(ctx, r.key)
	}
	c.mu.Lock()
	err := c.reentrant(ctx, r)
	if c.closed {
		err = closedError(r.key)
	}
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s, err := c.takeSession(ctx, r.key.Tag(), r.deadline, r.nested)
	if err != nil {
		return nil, c.explain(r, err)
	}
	return &builder{core: c, ctx: ctx, lock: r.lock, session: s, request: r}, nil
}

// take waits for one more key, behind those of this process that came before.
func (b *builder) take(key namespace.Key, mode session.Mode) error {
	r := newRequest(b.lock, key, NoTimeout)
	r.mode, r.own, r.partial = mode, b.session, b.taken
	r.start, r.deadline = b.request.start, b.request.deadline
	// A wait behind others of this process sends nothing, and the server would end
	// the session after a while.
	b.session.Watch(func(err error) { b.core.deny(r, err) })
	if res := b.core.submit(b.ctx, r); res.err != nil {
		return res.err
	}
	b.taken = append(b.taken, key)
	return nil
}

// drop gives one key back and keeps the others.
func (b *builder) drop(key namespace.Key, mode session.Mode) error {
	if err := b.session.Unlock(key.Tag(), mode); err != nil {
		return b.core.explain(b.request, err)
	}
	c := b.core
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, g := range b.lock.grants {
		if g.queue.tag == key.Tag() {
			b.lock.grants = append(b.lock.grants[:i], b.lock.grants[i+1:]...)
			g.drop()
			c.proceed(g.queue)
			c.tidy(g.queue)
			break
		}
	}
	return nil
}

var errLostKey = errors.New("a key was lost before the last one was taken")

// finish makes the lock complete and has its session watched.
func (b *builder) finish() (*Lock, error) {
	if b.ctx.Err() != nil {
		return nil, b.abort(canceled(b.ctx, b.request.key))
	}
	c := b.core
	if b.session.State(time.Now()) == session.Lost {
		return nil, b.abort(c.explain(b.request, &session.LostError{Cause: errLostKey}))
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, b.abort(closedError(b.request.key))
	}
	defer c.mu.Unlock()
	grants := b.lock.grants
	b.lock.begin(time.Now())
	b.session.Watch(func(err error) { c.lost(err, grants...) })
	return b.lock, nil
}

// abort gives everything back, in the background because a canceled caller does
// not wait for it, and returns err.
func (b *builder) abort(err error) error {
	c := b.core
	c.mu.Lock()
	grants := b.lock.grants
	var ended chan struct{} // of the campaign for the key that was being waited for
	for _, q := range c.queues {
		if q.campaign != nil && q.campaign.own == b.session {
			if q.campaign.ended == nil {
				q.campaign.ended = make(chan struct{})
			}
			ended = q.campaign.ended
		}
	}
	c.mu.Unlock()
	c.background(func() {
		if ended != nil {
			<-ended
		}
		if b.session.UnlockAll() != nil {
			b.session.Close()
		}
		c.giveBack(b.session)
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, g := range grants {
			g.drop()
			c.proceed(g.queue)
			c.tidy(g.queue)
		}
	})
	return err
}

// background runs f on a goroutine that Close waits for; once Close has begun to
// wait, on the caller's own.
func (c *core) background(f func()) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		f()
		return
	}
	c.wg.Add(1)
	c.mu.Unlock()
	go func() {
		defer c.wg.Done()
		f()
	}()
}
