package advisory

import (
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/session"
)

// beginAttending starts a goroutine that waits on the connection, under mu.
func (n *conn) beginAttending() {
	n.core.wg.Go(n.attend)
}

// attend waits on the connection as the table directs, and drives it meanwhile, until the table hands the
// connection to another user.
func (n *conn) attend() {
	c := n.core
	c.mu.Lock()
	defer c.mu.Unlock()
	step := c.table.Next(n.node, c.present())
	for step.Kind != locktable.Leave {
		c.run()
		switch step.Kind {
		case locktable.DoPending:
			n.drive(true)
			step = c.table.Next(n.node, c.present())
		case locktable.Sleep:
			c.unlocked(func() { n.sleep(step.Delay) })
			step = c.table.Next(n.node, c.present())
		case locktable.WaitFor, locktable.TryAny:
			reply, lost := n.step(step)
			step = c.table.Stepped(n.node, c.present(), reply, lost)
		}
	}
	c.run()
	n.retire()
}

// step waits once at the server, or tries the free slots. It is called under mu, which it releases meanwhile.
func (n *conn) step(step locktable.Step) (reply locktable.Reply, lost error) {
	c := n.core
	o := session.Op{Tag: step.Tag, Mode: step.Mode}
	switch {
	case step.Kind == locktable.WaitFor:
		c.stats.waitSteps.Add(1)
		o.Wait = NoTimeout
		if step.Deadline > 0 {
			o.Wait = max(step.Deadline-c.present(), time.Millisecond)
		}
	case len(step.Any) > 0:
		o = session.Op{Any: step.Any}
	default:
		o = session.Op{Ping: true} // the server learns that the session lives
	}
	c.unlocked(func() {
		lost = n.session.Do([]*session.Op{&o}, patience)
		if errors.Is(lost, session.ErrPending) {
			lost = n.session.Do(nil, 0)
		}
	})
	n.answered(lost)
	return locktable.Reply{Held: o.Held && !o.Ping, Index: o.Index, Err: o.Err}, lost
}

// sleep waits for delay, or until it is woken. Part of the delay is random, so that processes do not all try
// at once.
func (n *conn) sleep(delay time.Duration) {
	timer := time.NewTimer(pause.AtMost(delay))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-n.woken:
	case <-n.core.ctx.Done():
	}
}

// interrupt makes the goroutine that attends the connection ask the table again. It is called under mu.
func (n *conn) interrupt() {
	if n.session != nil {
		n.session.Interrupt()
	}
	n.wakeUp()
}

// wakeUp ends a sleep of the goroutine that attends the connection. It is called under mu.
func (n *conn) wakeUp() {
	select {
	case n.woken <- struct{}{}:
	default:
	}
}
