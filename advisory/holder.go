package advisory

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// askTimeout limits the query for the holder of a lock, because the answer is only extra
// information. A silent server delays an error by this time.
const askTimeout = 250 * time.Millisecond

// maxHolders is the largest number of slot holders that an error names.
const maxHolders = 10

// heldError returns the error of a try that found the lock held.
func (c *core) heldError(r *request) error {
	e := &HeldError{Key: r.name}
	if r.explain {
		e.Holder, e.unknown = c.holder(r.name.Tag())
	}
	return e
}

// Reasons why an error names no holder.
const (
	unasked    = "its holder is unknown: no connection of the lock pool was free to ask"
	unanswered = "its holder is unknown: the server did not answer within 250ms"
)

// holder returns the holder of a key, nil if there is none. If the holder is unknown, it returns
// why: no connection for the query is available soon, or the answer does not arrive. It does not
// wait for a connection that is in use.
func (c *core) holder(tag namespace.Tag) (h *Holder, unknown string) {
	holders, unknown := c.holders([]namespace.Tag{tag})
	if len(holders) > 0 {
		return &holders[0], ""
	}
	return nil, unknown
}

// holders is holder for several keys.
func (c *core) holders(tags []namespace.Tag) (holders []Holder, unknown string) {
	until := time.Now().Add(askTimeout)
	var asked *conn
	var err error // result of the last question
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
				return holders, unasked
			}
		}
		c.mu.Unlock()
		if h == nil {
			left := time.Until(until)
			if err == nil && left > 0 {
				h, err = askHolder(asked.session, tag, left)
			}
			if err != nil || left <= 0 {
				unknown = unanswered
			}
		}
		if h != nil {
			holders = append(holders, *h)
		}
	}
	return holders, unknown
}

// giveBack ends the use of a borrowed connection. lost is not nil if its session ended.
func (n *conn) giveBack(lost error) {
	c := n.core
	c.mu.Lock()
	defer c.mu.Unlock()
	n.answered(lost)
	c.table.Return(n.node, c.present(), lost)
	c.run()
	n.retire()
}

// localHolder describes a lock that this process holds, under mu.
func (c *core) localHolder(tag namespace.Tag) *Holder {
	k := c.table.Key(tag, false)
	if k == nil || k.Phase() != locktable.Held {
		return nil
	}
	return &Holder{
		Local: true, PID: connOf(k.Conn()).pid, ApplicationName: c.config.ApplicationName,
		Shared: k.Mode() == session.Shared, Since: c.opened.Add(k.Since()),
	}
}

// borrow returns a connection that nobody else uses until giveBack, or nil. It is called under mu,
// which it may release meanwhile.
func (c *core) borrow(until time.Time) *conn {
	for c.table.Ended() == nil {
		node := c.table.Borrow(c.present())
		c.run()
		if node == nil {
			return nil
		}
		if node.Phase() == locktable.Lent {
			return connOf(node)
		}
		ctx, cancel := context.WithDeadline(c.ctx, until)
		err := c.ping(ctx, node)
		cancel()
		if err != nil {
			return nil
		}
	}
	return nil
}

// ping asks the server whether a connection is alive. It is called under mu, which it
// releases meanwhile. It returns the loss, or the cause of ctx.
func (c *core) ping(ctx context.Context, node *locktable.Conn) error {
	r := &request{call: call{lock: &Lock{core: c}, ended: ctx.Done()}}
	r.Carrier = r
	c.table.Ping(node, &r.Request, c.present())
	c.run()
	notePending(node)
	answered := c.await(r) // unlocks mu
	c.mu.Lock()
	if !answered {
		return context.Cause(ctx)
	}
	return r.Err()
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
		Shared: h.Mode == session.Shared, SessionSince: h.BackendStart, Prepared: h.Prepared, whose: h.Whose,
	}
}
