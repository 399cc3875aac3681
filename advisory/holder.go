package advisory

import (
	"context"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// askTimeout bounds the question who holds a lock: the answer is a courtesy. A server
// that is silent delays an error by it, and by the short grace that Hurry leaves.
const askTimeout = 250 * time.Millisecond

// maxHolders is how many holders of slots an error names.
const maxHolders = 10

// holder tells who holds a key, nil if nobody does or a connection to ask with
// cannot be had soon. It does not wait for one that is in use.
func (c *core) holder(tag namespace.Tag) *Holder {
	if holders := c.holders([]namespace.Tag{tag}); len(holders) > 0 {
		return &holders[0]
	}
	return nil
}

// holders is holder for several keys.
func (c *core) holders(tags []namespace.Tag) (holders []Holder) {
	until := time.Now().Add(askTimeout)
	var asked *conn
	defer func() {
		if asked != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			asked.rounds++
			asked.next()
		}
	}()
	for _, tag := range tags {
		c.mu.Lock()
		h := c.localHolder(tag)
		if h == nil && asked == nil {
			if asked = c.borrow(until); asked == nil {
				c.mu.Unlock()
				return holders
			}
		}
		c.mu.Unlock()
		if h == nil && time.Now().Before(until) {
			h = askHolder(asked.session, tag, until)
		}
		if h != nil {
			holders = append(holders, *h)
		}
	}
	return holders
}

// borrow returns a connection of which nobody makes use until next is called, or nil.
// It is called under mu, which it may give up meanwhile.
func (c *core) borrow(until time.Time) *conn {
	for !c.closed {
		n := c.spareConn()
		switch {
		case n == nil:
			return nil
		case n.session != nil:
			n.busy = true
			return n
		}
		r := &request{lock: &Lock{core: c}, left: 1}
		o := &op{by: r, Op: session.Op{Ping: true}}
		n.push(o)
		ctx, cancel := context.WithDeadline(c.ctx, until)
		made := c.await(ctx, r) && r.err == nil
		cancel()
		c.mu.Lock()
		if !made {
			o.by = nil
			return nil
		}
	}
	return nil
}

func askHolder(s session.Session, tag namespace.Tag, until time.Time) *Holder {
	timer := time.AfterFunc(time.Until(until), s.Hurry)
	defer timer.Stop()
	h, ok, err := s.Holder(tag)
	if err != nil || !ok {
		return nil
	}
	return holderOf(h)
}

func holderOf(h session.Holder) *Holder {
	return &Holder{
		PID: h.PID, ApplicationName: h.ApplicationName, ClientAddr: h.ClientAddr, State: h.State,
		Shared: h.Mode == session.Shared, SessionSince: h.BackendStart,
	}
}

// localHolder describes a lock that this process holds, under mu.
func (c *core) localHolder(tag namespace.Tag) *Holder {
	k := c.keys[tag]
	if k == nil || k.phase != held {
		return nil
	}
	return &Holder{
		Local: true, PID: k.conn.session.PID(), ApplicationName: c.config.ApplicationName,
		Shared: k.mode == session.Shared, Since: k.at,
	}
}

// heldError is for a try that was refused.
func (c *core) heldError(r *request) error {
	e := &HeldError{Key: r.name}
	if r.explain {
		e.Holder = c.holder(r.name.Tag())
	}
	return e
}
