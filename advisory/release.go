package advisory

import (
	"slices"
	"time"
)

// release gives a lock back: to the next waiter of this process while the budget
// lasts, else to the server.
func (c *core) release(l *Lock) error {
	if l.Shared() {
		l.look()
	}
	c.mu.Lock()
	if g := c.outlasted(l, time.Now()); g != nil {
		c.mu.Unlock()
		if err := g.session.Verify(); err != nil {
			c.lost(err, g)
		}
		c.mu.Lock()
	}
	if l.released {
		c.mu.Unlock()
		return ErrReleased
	}
	l.end()
	l.released = true
	if i := slices.IndexFunc(l.grants, func(g *grant) bool { return g.cause != nil }); i >= 0 {
		cause := l.grants[i].cause
		c.mu.Unlock()
		return l.lose(cause)
	}
	g := l.grants[0]
	if g.alone {
		return c.releaseAll(l) // unlocks mu
	}
	g.users = slices.DeleteFunc(g.users, func(u *Lock) bool { return u == l })
	if len(g.users) > 0 {
		c.mu.Unlock()
		return nil
	}
	if len(g.queue.requests) > 0 {
		now := time.Now()
		if r := c.heir(g, now); r != nil {
			g.session.WatchNow()
			g.give(r, true, now)
			c.mu.Unlock()
			return nil
		}
	}
	g.drop()
	k := c.claim(g.queue, nil, g.session) // newcomers wait until the server has it back
	c.mu.Unlock()

	err := g.session.Unlock(g.queue.tag, g.mode)
	switch {
	case k == nil: // another campaign is under way, or the Locker is closing
		c.giveBack(g.session)
		c.mu.Lock()
		c.proceed(g.queue)
		c.tidy(g.queue)
		c.mu.Unlock()
	case err != nil:
		k.leave()
		k.finishOrRun()
	default:
		k.finishOrRun() // it goes on with the same session
	}
	if err != nil {
		return l.lose(err)
	}
	return nil
}

// releaseAll gives back the locks of a session that carries several. It is called
// under mu, and unlocks it.
func (c *core) releaseAll(l *Lock) error {
	for _, g := range l.grants {
		g.drop()
	}
	c.mu.Unlock()

	s := l.grants[0].session
	err := s.UnlockAll()
	c.giveBack(s)

	c.mu.Lock()
	for _, g := range l.grants {
		c.proceed(g.queue)
		c.tidy(g.queue)
	}
	c.mu.Unlock()
	if err != nil {
		return l.lose(err)
	}
	return nil
}

// outlasted returns the grant of a reader that leaves it to others, under mu, if the
// server must be asked first whether it still keeps the lock.
func (c *core) outlasted(l *Lock, now time.Time) *grant {
	if !l.Shared() || !l.live() {
		return nil
	}
	if g := l.grants[0]; !g.alone && len(g.users) > 1 && !c.verified(g.session, now) {
		return g
	}
	return nil
}
