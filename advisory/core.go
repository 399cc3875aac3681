package advisory

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// A core is the state that all copies of a Locker share. A state machine, the table, decides about locks; see package locktable.
// The core is its carrier: it has the connections, the clock and the goroutines, feeds the table events and carries out its
// commands.
//
// Lock order: core.mu before Lock.mu. No mutex is held during I/O or code of a user.
type core struct {
	config Config
	source session.Source
	stats  counters

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // connections, and background work

	untrace func() // what Tracer.Open returned
	reports reporter

	requests sync.Pool // of *request; not the package's, because a channel of one testing/synctest bubble cannot be used in another
	opened   time.Time // the table's instant 0

	mu        mutex
	table     *locktable.Table
	done      chan struct{} // closed when Close is done; nil = no call of close has begun
	deadlines deadlineTimer
	pauses    pauseWatch
	redial    backoff         // between attempts to connect
	notes     map[*Lock]*note // notes on some held locks
	warned    map[namespace.Tag]struct{}
	lastID    uint64 // of a request

	database *database // nil = unknown

	answers   *introspect.Membership // nil = no answers
	connected atomic.Int64           // connections, including those that are being opened or closed

	// verified checks whether a session lives, and returns when it was last seen alive; zero = unknown. Tests replace it.
	verified func(s session.Session, now time.Time) time.Time
}

func newCore(config Config, source session.Source) *core {
	c := &core{
		config:   config,
		source:   source,
		opened:   time.Now().Add(-time.Second), // so that no instant is 0
		table:    locktable.New(locktable.Limits{MaxConns: config.MaxConns, LocksPerConn: config.LocksPerConn, HandOverBudget: config.HandOverBudget}),
		notes:    make(map[*Lock]*note),
		warned:   make(map[namespace.Tag]struct{}),
		verified: func(s session.Session, now time.Time) time.Time { return s.Look(now, true).Verified },
	}
	c.setCapacity()
	c.reports.most = mostReports
	c.pauses.clock = boottime.Now
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.database = joinDatabase(source.Stats().Database, c)
	return c
}

const (
	share    = 20  // a Locker's default limit is this fraction of the server's lock table: a twentieth
	minLocks = 100 // and its minimum
)

// setCapacity applies the server's settings, which can change with a restart.
func (c *core) setCapacity() {
	room := c.source.Stats().LockTable
	switch {
	case c.dedicated():
	case c.config.MaxLocks > 0:
		c.table.SetCapacity(c.config.MaxLocks, room)
	default:
		c.table.SetCapacity(max(room/share, minLocks), room)
	}
}

// dedicated reports whether a connection carries one lock at most.
func (c *core) dedicated() bool { return c.config.LocksPerConn == 1 }

// run carries out the table's commands, under mu. It follows each event. No command is an event.
func (c *core) run() {
	commands := c.table.Commands()
	for i := range commands {
		m := &commands[i]
		switch m.Kind {
		case locktable.Dial:
			c.dial(m.Conn)
		case locktable.Abort:
			connOf(m.Conn).cancel()
		case locktable.Drive:
			connOf(m.Conn).appoint()
		case locktable.Attend:
			connOf(m.Conn).beginAttending()
		case locktable.Interrupt:
			connOf(m.Conn).interrupt()
		case locktable.Wake:
			connOf(m.Conn).wakeUp()
		case locktable.Watch:
			connOf(m.Conn).watch()
		case locktable.Rest:
			connOf(m.Conn).rest()
		case locktable.Lose:
			connOf(m.Conn).lose(m.Holders, m.Cause)
		case locktable.Close:
			connOf(m.Conn).unused()
		case locktable.Settle:
			c.settled(requestOf(m.Request))
		case locktable.Wait:
			requestOf(m.Request).waitsBehind(m.Ahead)
		case locktable.Suspect:
			c.suspect(requestOf(m.Request))
		case locktable.Pause:
			c.resume(pause.AtMost(2*m.Delay), m.Tag, m.Pool)
		case locktable.Reopen:
			c.reopen(m.Delay, m.Tag)
		case locktable.Poll:
			c.after(m.Delay, func() { c.table.Polled(c.present()) })
		case locktable.Break:
			c.breaks(m.Holders, m.Cause)
		}
	}
	clear(commands)
}

func (c *core) resume(delay time.Duration, tag locktable.Tag, pool bool) {
	c.after(delay, func() { c.table.Resume(c.present(), tag, pool) })
}

func (c *core) reopen(delay time.Duration, tag locktable.Tag) {
	c.after(delay, func() { c.table.Reopened(c.present(), tag) })
}

// after feeds the table an event after a delay, or when the Locker is closed.
func (c *core) after(delay time.Duration, event func()) {
	c.wg.Go(func() {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-c.ctx.Done():
		case <-timer.C:
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		event()
		c.run()
	})
}

// close ends waits with ErrClosed and held locks with a loss. It blocks until nothing of the Locker is left.
func (c *core) close() {
	report := c.reports.reporting()
	c.mu.Lock()
	if done := c.done; done != nil {
		c.mu.Unlock()
		if !report { // else another Close waits for it
			<-done
		}
		return
	}
	c.done = make(chan struct{})
	c.stop()
	c.table.Close(c.present(), ErrClosed)
	c.run()
	c.mu.Unlock()
	c.answers.Leave()
	c.wg.Wait()
	c.source.Close()
	c.database.leave(c)
	if !report {
		c.reports.wait()
	}
	close(c.done) // before code of a user, which may call Close
	c.traceClose()
}

// stop ends the timers and the background work, under mu.
func (c *core) stop() {
	c.deadlines.stop()
	if c.pauses.timer != nil {
		c.pauses.timer.Stop()
	}
	c.cancel()
}

// breaks handles a table that has found a bug in itself, under mu. Every lock is lost, because the table cannot be trusted, and
// the Locker accepts no more requests. The sessions end, so that the server releases the locks.
func (c *core) breaks(holders []*locktable.Holder, cause error) {
	c.stop()
	locks := c.lost(holders)
	for n := range c.table.Conns {
		connOf(n).breaks(cause)
	}
	c.reports.hold()
	c.wg.Go(func() {
		background.Each(locks, func(l *Lock) { _ = l.lose(cause) })
		c.resumeReports()
	})
	c.reportTo(func(log *slog.Logger) {
		log.Error("the Locker found a bug in itself and has closed: please report it", slog.Any("error", cause))
	})
}

// lost counts lost holders, under mu, and returns their locks.
func (c *core) lost(holders []*locktable.Holder) []*Lock {
	locks := make([]*Lock, len(holders))
	for i, h := range holders {
		locks[i] = lockOf(h)
		c.ended(locks[i])
	}
	return locks
}

// background runs f on a goroutine that Close waits for. Once Close has begun to wait, it runs f on the caller's goroutine.
func (c *core) background(f func()) {
	c.mu.Lock()
	if c.table.Ended() != nil {
		c.mu.Unlock()
		f()
		return
	}
	c.wg.Add(1)
	c.mu.Unlock()
	go func() {
		defer c.wg.Done()
		f()
	}()
}

// unlocked calls f without mu.
func (c *core) unlocked(f func()) {
	c.mu.Unlock()
	defer c.mu.Lock()
	f()
}

// settled handles a request that the table has settled, under mu.
func (c *core) settled(r *request) {
	c.forget(r)
	if r.Key() != nil && r.Err() == nil {
		if r.slots != nil {
			r.lock.keys = r.slotOf(r.lock.hold.Slot())
		}
		if !r.Part {
			c.began()
		}
	}
	r.wakeUp()
}

// forget removes a request from the records that the table does not keep, under mu.
func (c *core) forget(r *request) {
	c.deadlines.forget(r)
	c.database.forget(r)
}

// suspect makes a caller search for a cycle, through other Lockers of the process, that its wait may
// close. It is called under mu.
func (c *core) suspect(r *request) {
	if c.database.shared() {
		r.searches = true
		r.wakeUp()
	}
}
