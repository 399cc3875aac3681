package advisorytest

import (
	"fmt"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A conn is one use of a backend, from Acquire to Release or Close.
type conn struct {
	server    *Server
	backend   *backend
	interrupt chan struct{}

	// guarded by server.mu
	ended  bool
	report func(error) // nil = not watched
}

var _ session.Session = (*conn)(nil)

// maxSlice is the longest wait in the queue; whoever goes on waiting stands at its
// end again, as on PostgreSQL with its default deadlock_timeout.
const maxSlice = 900 * time.Millisecond

// lostLocked returns the loss of the session, under mu.
func (c *conn) lostLocked() error {
	if c.backend.lost != nil {
		return c.backend.lost
	}
	return nil
}

// PID is the server's number for the session.
func (c *conn) PID() uint32 { return c.backend.pid }

// State is Held or Lost: nothing is in doubt in memory.
func (c *conn) State(time.Time) session.State {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.backend.lost != nil {
		return session.Lost
	}
	return session.Held
}

// Loss says why the session is lost.
func (c *conn) Loss() error { return c.Verify() }

// Verified reports whether the session lives.
func (c *conn) Verified(now time.Time) bool { return c.State(now) == session.Held }

// Verify fails if the session does not live.
func (c *conn) Verify() error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.lostLocked()
}

// Try takes the lock if it is free.
func (c *conn) Try(tag namespace.Tag, mode session.Mode) (bool, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if err := c.lostLocked(); err != nil {
		return false, err
	}
	return c.server.try(tag, holder{c.backend, mode}), nil
}

// Batch runs the operations: unlocks, then tries.
func (c *conn) Batch(ops []*session.Op, _ time.Duration) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.report = nil
	if err := c.lostLocked(); err != nil {
		return err
	}
	for _, op := range ops {
		op.Held, op.Index, op.Err = false, -1, nil
		if op.Unlock && !c.server.unlock(op.Tag, holder{c.backend, op.Mode}) {
			return fmt.Errorf("BUG: unlock of %v, which the session does not hold", op.Tag)
		}
	}
	for _, op := range ops {
		switch {
		case op.Unlock, op.Ping:
		case op.Turnstile.Valid() && !c.server.passes(op.Turnstile, c.backend):
		case op.Pass:
			op.Held = true
		case op.Any != nil:
			op.Index = slices.IndexFunc(op.Any, func(tag namespace.Tag) bool {
				return c.server.try(tag, holder{c.backend, session.Exclusive})
			})
			op.Held = op.Index >= 0
		default:
			op.Held = c.server.try(op.Tag, holder{c.backend, op.Mode})
		}
	}
	return nil
}

// Resume has nothing to wait for: no batch takes time.
func (*conn) Resume() error { return nil }

// TryAny takes the first free one of the tags.
func (c *conn) TryAny(tags []namespace.Tag) (int, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if err := c.lostLocked(); err != nil {
		return -1, err
	}
	return slices.IndexFunc(tags, func(tag namespace.Tag) bool {
		return c.server.try(tag, holder{c.backend, session.Exclusive})
	}), nil
}

// Wait stands in the queue for one slice.
func (c *conn) Wait(tag namespace.Tag, mode session.Mode, limit time.Duration) (bool, error) {
	s := c.server
	w := &waiter{holder: holder{c.backend, mode}, granted: make(chan struct{})}
	s.mu.Lock()
	if err := c.lostLocked(); err != nil {
		s.mu.Unlock()
		return false, err
	}
	if s.try(tag, w.holder) {
		s.mu.Unlock()
		return true, nil
	}
	s.lock(tag).queue = append(s.lock(tag).queue, w)
	s.mu.Unlock()

	timer := time.NewTimer(max(min(limit, maxSlice), time.Millisecond))
	defer timer.Stop()
	select {
	case <-w.granted:
	case <-timer.C:
	case <-c.interrupt:
	case <-c.backend.gone:
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.lostLocked(); err != nil {
		return false, err
	}
	select {
	case <-w.granted: // perhaps in the instant in which the wait ended
		return true, nil
	default:
	}
	s.leave(tag, w)
	return false, nil
}

// Interrupt ends a Wait that is under way, or the next one.
func (c *conn) Interrupt() {
	select {
	case c.interrupt <- struct{}{}:
	default: // already asked
	}
}

// Hurry has nothing to do: no statement takes time.
func (c *conn) Hurry() {}

// Unlock gives one lock back.
func (c *conn) Unlock(tag namespace.Tag, mode session.Mode) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.report = nil
	if err := c.lostLocked(); err != nil {
		return err
	}
	if !c.server.unlock(tag, holder{c.backend, mode}) {
		return fmt.Errorf("BUG: unlock of %v, which the session does not hold", tag)
	}
	return nil
}

// UnlockAll gives every lock back.
func (c *conn) UnlockAll() error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.report = nil
	if err := c.lostLocked(); err != nil {
		return err
	}
	for h := range c.backend.held {
		for c.server.unlock(h.tag, holder{c.backend, h.mode}) {
			continue
		}
	}
	return nil
}

// Holder tells who holds the lock: of several sessions, the oldest.
func (c *conn) Holder(tag namespace.Tag) (session.Holder, bool, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if err := c.lostLocked(); err != nil {
		return session.Holder{}, false, err
	}
	l := c.server.locks[tag]
	if l == nil || len(l.holders) == 0 {
		return session.Holder{}, false, nil
	}
	h := slices.MinFunc(l.holders, func(a, b holder) int { return int(a.backend.pid) - int(b.backend.pid) })
	return session.Holder{
		PID: h.backend.pid, ApplicationName: h.backend.source.applicationName, State: stateOf(h.backend),
		Mode: h.mode, BackendStart: h.backend.since,
	}, true, nil
}

// Watch reports the session's loss, once, from another goroutine. One that is
// lost already is reported as well.
func (c *conn) Watch(lost func(error)) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.report = lost
	if err := c.lostLocked(); err != nil {
		c.report = nil
		c.backend.source.inUse.Go(func() { lost(err) })
	}
}

// WatchNow has nothing to hasten: a loss in memory is known at once.
func (*conn) WatchNow() {}

// Kill ends the session from any goroutine, unless it was given back.
func (c *conn) Kill(cause error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if !c.ended {
		c.backend.kill(cause)
	}
}

// Release gives the session back for reuse if it holds no lock and lives.
func (c *conn) Release() { c.end(true) }

// Close ends the session, and with it every lock.
func (c *conn) Close() { c.end(false) }

func (c *conn) end(reuse bool) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.ended {
		return
	}
	c.ended, c.report = true, nil
	b := c.backend
	b.conn = nil
	if p := b.source; reuse && b.lost == nil && len(b.held) == 0 && !p.closed {
		p.idle = append(p.idle, b)
	} else {
		b.end()
	}
	b.source.inUse.Done()
}
