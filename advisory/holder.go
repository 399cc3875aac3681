package advisory

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// askTimeout bounds the question who holds a lock: the answer is a courtesy. A server
// that is silent delays an error by it.
const askTimeout = 250 * time.Millisecond

// maxHolders is how many holders of slots an error names.
const maxHolders = 10

// heldError is for a try that was refused.
func (c *core) heldError(r *request) error {
	e := &HeldError{Key: r.name}
	if r.explain {
		e.Holder = c.holder(r.name.Tag())
	}
	return e
}

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
	var err error // of the last question
	defer func() {
		switch {
		case asked == nil:
		case errors.Is(err, session.ErrPending):
			c.background(func() { asked.giveBack(asked.session.Do(nil, 0)) })
		default:
			asked.giveBack(err)
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
		if left := time.Until(until); h == nil && err == nil && left > 0 {
			h, err = askHolder(asked.session, tag, left)
		}
		if h != nil {
			holders = append(holders, *h)
		}
	}
	return holders
}

// giveBack ends the use of a connection that was borrowed, whose last question ended
// with err.
func (n *conn) giveBack(err error) {
	n.core.mu.Lock()
	defer n.core.mu.Unlock()
	n.rounds++
	n.lent = false
	if err != nil {
		n.end(err)
	}
	n.next()
}

// localHolder describes a lock that this process holds, under mu.
func (c *core) localHolder(tag namespace.Tag) *Holder {
	k := c.keys[tag]
	if k == nil || k.phase != held {
		return nil
	}
	return &Holder{
		Local: true, PID: k.conn.pid, ApplicationName: c.config.ApplicationName,
		Shared: k.mode == session.Shared, Since: k.at,
	}
}

// borrow returns a connection of which nobody makes use until next is called, or nil.
// It is called under mu, which it may give up meanwhile.
func (c *core) borrow(until time.Time) *conn {
	for !c.closed {
		n := c.unused(nil)
		switch {
		case n == nil:
			return nil
		case n.session != nil:
			n.busy, n.lent = true, true
			n.place()
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

func askHolder(s session.Session, tag namespace.Tag, patience time.Duration) (*Holder, error) {
	o := session.Op{Tag: tag, Holder: new(session.Holder)}
	if err := s.Do([]*session.Op{&o}, patience); err != nil || !o.Held {
		return nil, err
	}
	return holderOf(*o.Holder), nil
}

func holderOf(h session.Holder) *Holder {
	return &Holder{
		PID: h.PID, ApplicationName: h.ApplicationName, ClientAddr: h.ClientAddr, State: h.State,
		Shared: h.Mode == session.Shared, SessionSince: h.BackendStart,
	}
}
