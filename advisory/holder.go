package advisory

import (
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// askTimeout bounds the question who holds a lock: the answer is a courtesy. A server
// that is silent delays an error by it, and by the short grace that Hurry leaves.
const askTimeout = 250 * time.Millisecond

// holder tells who holds a key, nil if nobody does or a connection to ask with
// cannot be had soon. It does not wait for one that is in use.
func (c *core) holder(tag namespace.Tag) *Holder {
	if h := c.localHolder(tag); h != nil {
		return h
	}
	until := time.Now().Add(askTimeout)
	s, err := c.takeSession(c.ctx, tag, until, true)
	if err != nil {
		return nil
	}
	defer c.giveBack(s)
	return askHolder(s, tag, until)
}

// maxHolders is how many holders of slots an error names.
const maxHolders = 10

// slotHolders tells who holds the first slots of a semaphore, as holder does.
func (c *core) slotHolders(key namespace.Key, n int) (holders []Holder) {
	until := time.Now().Add(askTimeout)
	var asked session.Session
	defer func() {
		if asked != nil {
			c.giveBack(asked)
		}
	}()
	for i := range min(n, maxHolders) {
		slot, err := key.Slot(i)
		if err != nil {
			return holders
		}
		h := c.localHolder(slot.Tag())
		if h == nil && asked == nil {
			if asked, err = c.takeSession(c.ctx, slot.Tag(), until, true); err != nil {
				asked = nil
				return holders
			}
		}
		if h == nil && time.Now().Before(until) {
			h = askHolder(asked, slot.Tag(), until)
		}
		if h != nil {
			holders = append(holders, *h)
		}
	}
	return holders
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

// localHolder describes a lock that this process holds.
func (c *core) localHolder(tag namespace.Tag) *Holder {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[tag]
	if q == nil || len(q.grants) == 0 {
		return nil
	}
	g := q.grants[0]
	return &Holder{
		Local: true, PID: g.session.PID(), ApplicationName: c.config.ApplicationName,
		Shared: g.mode == session.Shared, Since: g.at,
	}
}

// heldError is for a try that this process itself stands in the way of.
func (c *core) heldError(r *request) error {
	e := &HeldError{Key: r.key}
	if r.explain {
		e.Holder = c.holder(r.key.Tag())
	}
	return e
}

// heldBySession is for a try that the server refused; the session that was
// refused asks.
func (c *core) heldBySession(s session.Session, r *request) error {
	e := &HeldError{Key: r.key}
	if r.explain {
		e.Holder = askHolder(s, r.key.Tag(), time.Now().Add(askTimeout))
	}
	return e
}
