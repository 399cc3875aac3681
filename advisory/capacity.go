package advisory

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// errNoSlot: every connection is in use, and the caller may not, or could not
// any longer, wait for one.
var errNoSlot = errors.New("no slot")

// takeSession returns a session within the pool's limit. A nested caller, who
// holds locks and thereby connections, does not wait for a slot: those who hold
// the others may be waiting for its. deadline zero = none.
func (c *core) takeSession(ctx context.Context, tag namespace.Tag, deadline time.Time, nested bool) (session.Session, error) {
	if err := c.takeSlot(ctx, deadline, nested); err != nil {
		return nil, err
	}
	return c.inSlot(ctx, tag, deadline)
}

// inSlot fills a slot with a session, or frees it.
func (c *core) inSlot(ctx context.Context, tag namespace.Tag, deadline time.Time) (session.Session, error) {
	s, err := c.source.Acquire(ctx, tag, deadline)
	if err != nil {
		c.freeSlot()
		return nil, err
	}
	return s, nil
}

func (c *core) takeSlot(ctx context.Context, deadline time.Time, nested bool) error {
	if c.slots == nil {
		return nil
	}
	select {
	case c.slots <- struct{}{}:
		return nil
	default:
	}
	if nested {
		return errNoSlot
	}
	var expired <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
	case <-expired:
	}
	return errNoSlot
}

func (c *core) freeSlot() {
	if c.slots != nil {
		<-c.slots
	}
}

// full reports whether a new session would have to wait.
func (c *core) full() bool { return c.slots != nil && len(c.slots) == cap(c.slots) }

// giveBack returns a session whose locks are all released, or ends it.
func (c *core) giveBack(s session.Session) {
	s.Release()
	c.freeSlot()
}
