package memory

import (
	"fmt"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A conn is one use of a backend, from Acquire to Close.
type conn struct {
	server    *Server
	backend   *backend
	interrupt chan struct{}

	// guarded by server.mu
	ended  bool
	report func(error) // nil = not watched
}

var _ session.Session = (*conn)(nil)

// maxWaitStep is the longest wait in the queue. A longer wait starts again at the end of the queue,
// as on PostgreSQL with its default deadlock_timeout.
const maxWaitStep = 900 * time.Millisecond

// lostLocked returns the loss of the session. The caller holds mu.
func (c *conn) lostLocked() error {
	if c.backend.lost != nil {
		return c.backend.lost
	}
	return nil
}

// Look reports whether the session is alive. In memory no session is in doubt.
func (c *conn) Look(now time.Time, _ bool) session.Status {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	status := session.Status{PID: c.backend.pid, State: session.Held, Verified: now}
	if lost := c.lostLocked(); lost != nil {
		status.State, status.Loss, status.Verified = session.Lost, lost, time.Time{}
	}
	return status
}

// Do runs the operations: unlocks, then the others.
func (c *conn) Do(ops []*session.Op, _ time.Duration) (err error) {
	if len(ops) == 1 && ops[0].Wait != 0 {
		ops[0].Held, err = c.wait(ops[0].Tag, ops[0].Mode, ops[0].Wait)
		return err
	}
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
		case op.Holder != nil:
			*op.Holder, op.Held = c.server.holder(op.Tag)
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

// wait queues for one wait step.
func (c *conn) wait(tag namespace.Tag, mode session.Mode, limit time.Duration) (bool, error) {
	s := c.server
	w := &waiter{holder: holder{c.backend, mode}, granted: make(chan struct{})}
	s.mu.Lock()
	c.report = nil
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

	timer := time.NewTimer(max(min(limit, maxWaitStep), time.Millisecond))
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
	case <-w.granted: // perhaps at the instant when the wait ended
		return true, nil
	default:
	}
	s.leave(tag, w)
	return false, nil
}

// Interrupt ends a current wait, or the next one.
func (c *conn) Interrupt() {
	select {
	case c.interrupt <- struct{}{}:
	default: // already requested
	}
}

// Watch reports the session's loss, once, from another goroutine. It also reports an earlier loss.
func (c *conn) Watch(lost func(error)) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.report = lost
	if err := c.lostLocked(); err != nil {
		c.report = nil
		c.backend.source.inUse.Go(func() { lost(err) })
	}
}

// Kill ends the session, unless it was returned. Any goroutine may call it.
func (c *conn) Kill(cause error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if !c.ended {
		c.backend.kill(cause)
	}
}

// Close returns the session for reuse if reuse is true, it holds no lock and is alive. Otherwise it
// ends, and with it every lock.
func (c *conn) Close(reuse bool) {
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
