package multiplex

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// tick comes a while after the carrier was used. One that did nothing since is
// given back if nothing is held on it, and watched otherwise.
func (c *carrier) tick() {
	c.mu.Lock()
	switch {
	case c.busy: // or closed; armed again when it is not
		c.armed = false
		c.mu.Unlock()
	case c.rounds != c.seen:
		c.seen = c.rounds
		c.idle.Reset(idleAfter)
		c.mu.Unlock()
	case len(c.holders) > 0:
		c.armed = false
		c.watch()
		c.mu.Unlock()
	default:
		c.busy, c.closed = true, errGone
		c.line.current.CompareAndSwap(c, nil)
		c.mu.Unlock()
		c.line.left(c, false)
		c.session.Release()
		c.line.source.wg.Done()
	}
}

// watch has the session watched at once, under mu.
func (c *carrier) watch() {
	c.watched = true
	c.attended.Store(true)
	c.session.Watch(c.lost)
	c.session.WatchNow()
}

// watchNow begins a watch if nothing else would find out that the session ended.
func (c *carrier) watchNow() {
	if c.attended.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.busy && !c.watched {
		c.watch()
	}
}

// lost is the report of the session's loss.
func (c *carrier) lost(cause error) { c.stop(cause) }

// kill ends the carrier from any goroutine.
func (c *carrier) kill(cause error) { c.stop(cause) }

// stop ends the carrier: at once if it is idle, else who drives closes the session
// when its statement, which fails now, is over.
func (c *carrier) stop(cause error) {
	c.mu.Lock()
	idle := !c.busy
	tell := c.end(cause)
	c.busy = true
	c.tell(tell) // while Close still waits for the carrier
	c.mu.Unlock()
	if tell != nil {
		c.session.Kill(cause)
	}
	if idle {
		c.finish(nil)
	}
}

// end makes the carrier dead, once, under mu, and returns whom to tell, which is
// not nil the first time.
func (c *carrier) end(cause error) (tell []*Session) {
	if c.closed != nil {
		return nil
	}
	lost, ok := errors.AsType[*session.LostError](cause)
	if !ok {
		lost = &session.LostError{Cause: cause}
	}
	c.closed = lost
	c.line.current.CompareAndSwap(c, nil) // who comes now gets another
	tell = make([]*Session, 0, len(c.holders))
	for _, v := range c.holders {
		tell = append(tell, v)
	}
	c.line.source.used.Add(-int64(c.locks))
	c.holders, c.locks = nil, 0
	for _, o := range c.pending {
		o.done, o.Held, o.Err = true, false, lost
		if o.wake != nil && !o.leading {
			o.wake <- isDone
		}
	}
	c.pending = nil
	return tell
}

// finish closes the session of a dead carrier, once: by who drives, or by who
// found it idle.
func (c *carrier) finish(tell []*Session) {
	c.idle.Stop()
	c.line.left(c, true)
	c.session.Close()
	c.tell(tell)
	c.line.source.wg.Done()
}

// tell has the virtual sessions told in the background, because each report does
// the business of a Locker.
func (c *carrier) tell(sessions []*Session) {
	if len(sessions) == 0 {
		return
	}
	lost, _ := errors.AsType[*session.LostError](c.closed)
	c.line.source.wg.Go(func() {
		for _, v := range sessions {
			v.lose(lost)
		}
	})
}

func (c *carrier) inUse() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed == nil && (c.busy || len(c.holders) > 0)
}

func (c *carrier) pid() uint32 { return c.session.PID() }

// state is that of the session, or Doubtful while a statement is overdue.
func (c *carrier) state(now time.Time) session.State {
	state := c.session.State(now)
	if c.slow.Load() {
		state = max(state, session.Doubtful)
	}
	return state
}

func (c *carrier) loss() error { return c.session.Loss() }

// verified is that of the session. While a batch is under way, a look finds nothing
// until its answer comes.
func (c *carrier) verified(now time.Time) bool { return !c.slow.Load() && c.session.Verified(now) }

// verify asks the server in the next batch.
func (c *carrier) verify(v *Session) error {
	o := newOp(v, namespace.Tag{}, session.Exclusive, false)
	o.Ping = true
	defer o.free()
	return c.do(context.Background(), time.Time{}, o)
}
