package advisory

import (
	"cmp"
	"context"
	"errors"

	"github.com/pglatch/pglatch/internal/locktable"
)

// release gives a lock back: to the next waiter of this process while the budget lasts, otherwise
// to the server.
func (c *core) release(l *Lock) error {
	if l.Shared() || c.stats.waiting.Load() > 0 { // the lock can stay in this process, and then the server is not asked
		l.look()
	}
	c.mu.Lock()
	now := c.present()
	if stale := c.table.Stale(&l.hold, now); stale != nil {
		c.lookAt(stale)
		c.pingAll(c.table.Unverified(&l.hold, c.present()))
		now = c.present()
	}
	held := l.live()
	r := c.newRequest(l)
	defer r.free()
	outcome := c.table.Release(&l.hold, &r.Request, now)
	if held {
		c.ended(l)
	}
	c.run()
	for _, n := range l.hold.Conns() {
		notePending(n)
	}
	if outcome == locktable.Unsettled {
		c.await(r) // unlocks mu
		if r.Err() != nil {
			return l.lose(r.Err())
		}
		return nil
	}
	cause := cmp.Or(l.hold.Cause(), c.table.Ended())
	c.mu.Unlock()
	switch outcome {
	case locktable.Again:
		return ErrReleased
	case locktable.WasLost:
		return l.lose(cause)
	}
	return nil
}

// lookAt checks whether sessions are alive, under mu, which it releases meanwhile.
func (c *core) lookAt(conns []*locktable.Conn) {
	c.unlocked(func() {
		for _, n := range conns {
			connOf(n).look()
		}
	})
	for _, n := range conns {
		connOf(n).noteLook()
	}
}

// pingAll asks the server whether connections are alive, under mu, which it releases
// meanwhile. Afterwards, connections that are not alive are lost.
func (c *core) pingAll(conns []*locktable.Conn) {
	for _, n := range conns {
		_ = c.ping(context.Background(), n) // an error is a loss, which the lock then has
	}
}

// giveUp gives back the locks of an acquisition that returns no Lock to its caller. It does
// not wait for the server. From now on the lock is not held.
func (c *core) giveUp(l *Lock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.live() {
		c.ended(l)
	}
	c.table.GiveUp(&l.hold, c.present())
	c.run()
}

// Release gives the lock back. If it returns nil, the lock was held when Release was called,
// within the limits that the package's documentation states. Another process can then take the
// lock. If the lock was lost, Release returns the *LostError. A second Release returns
// ErrReleased, so a deferred Release does no harm.
//
// Release takes no context, because nothing may stop it. A dead network delays it by several
// seconds (5 s for each statement that it still has to send).
func (l *Lock) Release() error {
	if l.core == nil {
		return ErrReleased
	}
	err := l.core.release(l)
	if errors.Is(err, ErrReleased) {
		return err
	}
	l.mu.Lock()
	l.ended = true
	cancel := l.cancel
	l.mu.Unlock()
	if cancel != nil {
		l.endContext(cancel, ErrReleased)
	}
	loss, _ := errors.AsType[*LostError](err)
	l.core.traceRelease(l, loss)
	return err
}
