package advisory

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/session"
)

// A conn carries out the table's decisions for one of its connections.
//
// No goroutine owns the session for long. The table hands it out with Drive or Attend, and gets it back with the
// answer. The goroutine that finds the connection idle drives it. When its statement is answered, one of the waiting
// goroutines drives the next statement. So a single operation needs no other goroutine, and is sent as the plain
// statement. Operations that arrive while a statement is under way go out together in the next one.
type conn struct {
	core    *core
	node    *locktable.Conn
	session session.Session    // nil while it is being made
	pid     uint32             // of the session
	cancel  context.CancelFunc // ends the attempt to make it
	quit    chan struct{}      // closed when it has ended, or its table is broken, and nobody uses the session
	woken   chan struct{}      // ends a sleep of the goroutine that attends the connection

	// guarded by core.mu
	timer   *time.Timer
	rounds  int          // round trips that the server has answered
	seen    int          // rounds when the timer last fired, or armed = it runs and has not fired; unarmed = it does not run
	watched int          // rounds when the session's watch began, which the next statement ends; -1 = never
	looked  atomic.Int64 // when the session was last seen alive, as an instant; 0 = never

	slow    atomic.Bool  // its statement takes long
	pending atomic.Int32 // pending operations, readable without mu

	// used only by the driving goroutine
	expected int // requests that waited for the last batch, or were in it
	ops      []session.Op
	args     []*session.Op
	replies  []locktable.Reply
}

func connOf(n *locktable.Conn) *conn {
	return n.Carrier.(*conn) //nolint:forcetypeassert // dial sets it
}

// notePending updates the number of pending operations, under mu.
func notePending(n *locktable.Conn) {
	if n != nil {
		connOf(n).pending.Store(int32(n.Pending()))
	}
}

// idleAfter is how long a connection is idle before it is watched, or given back if it holds nothing. No operation pays
// for a timer: the timer runs on while there is traffic.
const idleAfter = 5 * time.Millisecond

// Values of conn.seen.
const (
	unarmed = -1 - iota
	armed
)

// rest schedules a tick for the connection, under mu.
func (n *conn) rest() {
	if n.seen == unarmed {
		n.seen = armed
		n.timer.Reset(idleAfter)
	}
}

// tick runs some time after the connection was used. If it was idle since, tick gives it back if it holds nothing, and
// otherwise watches it.
func (n *conn) tick() {
	c := n.core
	c.mu.Lock()
	if n.rounds != n.seen && n.node.Phase() == locktable.Idle {
		n.seen = n.rounds
		n.timer.Reset(idleAfter)
		c.mu.Unlock()
		return
	}
	n.seen = unarmed
	forget := false
	switch c.table.Rested(n.node, c.present()) {
	case locktable.InUse: // it is armed again when it is idle
	case locktable.Guard:
		n.watch()
	case locktable.Forget:
		forget = true
	}
	c.run()
	c.mu.Unlock()
	if forget {
		n.session.Close(true)
		c.gone()
	}
}

// watch watches the session, under mu, unless something else would detect its end.
func (n *conn) watch() {
	if n.watched == n.rounds || n.node.Phase() != locktable.Idle {
		return
	}
	n.watched = n.rounds
	n.session.Watch(func(err error) { n.end(err) })
}

// end marks the connection, and all locks on it, as lost, once.
func (n *conn) end(cause error) {
	c := n.core
	c.mu.Lock()
	defer c.mu.Unlock()
	c.table.End(n.node, c.present(), cause)
	c.run()
}

// state returns the session's state, or Doubtful while a statement is overdue.
func (n *conn) state(now time.Time) session.State {
	state := n.session.Look(now, false).State
	if n.slow.Load() {
		state = max(state, session.Doubtful)
	}
	return state
}

// expire ends the connection if its deadline has passed, under mu.
func (n *conn) expire(now time.Time) {
	if n.node.Lost() != nil || n.session == nil {
		return
	}
	if status := n.session.Look(now, false); status.State == session.Lost {
		n.core.table.End(n.node, n.core.present(), cmp.Or(status.Loss, session.ErrSilent))
	}
}

// answered records the end of a statement, under mu. If the session was lost, there was no answer.
func (n *conn) answered(lost error) {
	if lost != nil {
		return
	}
	if n.rounds == 0 {
		n.core.redial = backoff{}
		n.core.table.DialFrom(0)
	}
	n.rounds++
}

// look checks whether the session is alive, as far as this process can see. It can cost a system call, so do not call
// it under mu.
func (n *conn) look() {
	c := n.core
	seen := locktable.Instant(0)
	if at := c.verified(n.session, time.Now()); !at.IsZero() {
		seen = c.instant(at)
	}
	n.looked.Store(int64(seen))
}

// noteLook passes the result of look to the table, under mu.
func (n *conn) noteLook() { n.core.table.Verified(n.node, locktable.Instant(n.looked.Load())) }

// lose ends the locks of a connection that was lost, under mu.
func (n *conn) lose(holders []*locktable.Holder, cause error) {
	c := n.core
	n.timer.Stop()
	n.pending.Store(0)
	if n.rounds == 0 {
		c.redial.failed()
		c.table.DialFrom(c.instant(c.redial.notBefore))
	}
	locks := c.lost(holders)
	c.reports.hold()
	c.wg.Go(func() { n.close(locks, cause) })
}

// close notifies the holders of all lost locks first, and then closes the connection.
func (n *conn) close(locks []*Lock, cause error) {
	background.Each(locks, func(l *Lock) { _ = l.lose(cause) }) // the lock keeps the loss
	n.core.resumeReports()
	n.session.Kill(cause) // so that a driver does not wait for an answer
	<-n.quit
	n.session.Close(false)
	c := n.core
	c.mu.Lock()
	c.table.Closed(n.node, c.present())
	c.run()
	c.mu.Unlock()
	c.gone()
}

// breaks ends a connection of a broken table, under mu. A goroutine that is using the session soon gets an error, and
// then calls retire.
func (n *conn) breaks(cause error) {
	switch n.node.Phase() {
	case locktable.Making, locktable.Unwanted: // connect detects the broken table
	case locktable.Ended: // close kills the session
	case locktable.Idle, locktable.Busy, locktable.Lent:
		n.timer.Stop()
		n.core.wg.Go(func() { n.session.Kill(cause) })
		if n.node.Phase() == locktable.Idle {
			n.retire()
		}
	}
}

// retire closes the session of a broken table's connection when its user has ended. It does so once, under mu.
func (n *conn) retire() {
	c := n.core
	if c.table.Broken() == nil || n.session == nil || !n.unused() || n.node.Phase() == locktable.Ended { // close goes on
		return
	}
	c.wg.Go(func() {
		n.session.Close(false)
		c.gone()
	})
}

// unused records that nobody uses the session of a connection that ended, under mu, and reports whether it is the first
// to do so. It allows close to close a lost connection.
func (n *conn) unused() (first bool) {
	select {
	case <-n.quit:
		return false
	default:
		close(n.quit)
		return true
	}
}

// dial makes a connection in the background, under mu.
func (c *core) dial(node *locktable.Conn) {
	n := &conn{core: c, node: node, quit: make(chan struct{}), woken: make(chan struct{}, 1), seen: unarmed, watched: -1}
	node.Carrier = n
	ctx, cancel := context.WithCancel(c.ctx)
	n.cancel = cancel
	n.timer = time.AfterFunc(time.Hour, n.tick)
	n.timer.Stop()
	c.connected.Add(1)
	c.answers.Connected()
	c.wg.Add(1) // until it is closed
	delay := time.Duration(0)
	if !c.dedicated() {
		delay = time.Until(c.redial.notBefore)
	}
	c.wg.Go(func() { n.connect(ctx, delay) })
}

// connect tries to connect, after the delay.
func (n *conn) connect(ctx context.Context, delay time.Duration) {
	defer n.cancel()
	c := n.core
	_ = pause.For(ctx, delay) // Acquire reports that ctx ended
	s, err := c.source.Acquire(ctx)
	c.mu.Lock()
	made := false
	if err == nil {
		n.session, n.pid = s, s.Look(time.Now(), false).PID
		c.setCapacity()
		made = c.table.Connected(n.node, c.present())
	} else {
		c.unmade(n.node, err)
	}
	c.run()
	over := made || !n.unused()
	c.mu.Unlock()
	if over {
		return
	}
	if s != nil {
		s.Close(false)
	}
	c.gone()
}

// unmade reports a failed attempt to connect to the table, under mu.
func (c *core) unmade(node *locktable.Conn, err error) {
	if node.Phase() == locktable.Making { // otherwise nobody wanted it any more
		c.redial.failed()
	}
	c.table.Unmade(node, c.present(), err, c.instant(c.redial.notBefore), errors.Is(err, ErrLockTableFull))
}

// gone records that a connection no longer exists.
func (c *core) gone() {
	c.connected.Add(-1)
	c.wg.Done()
}

// A backoff delays attempts to connect, so that callers that share a connection do not storm a server that is down.
type backoff struct {
	failures  int       // consecutive failures: attempts, and sessions that died before their first answer
	notBefore time.Time // earliest time of the next attempt
}

const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

// failed delays the next attempt, under mu.
func (b *backoff) failed() {
	b.notBefore = time.Now().Add(pause.Backoff(b.failures, firstPause, maxPause))
	b.failures++
}
