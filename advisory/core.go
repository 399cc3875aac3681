package advisory

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// A core is what all copies of a Locker share: the keys that this process holds or
// asks for, and the connections that they live on.
//
// Lock order: core.mu before Lock.mu. No mutex is held over I/O or a tracer.
type core struct {
	config Config
	source session.Source
	stats  counters

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // connections, and what runs in the background
	done   chan struct{}  // closed when Close is through

	untrace func() // what Tracer.Open returned

	requests sync.Pool // of *request; not the package's, because a channel of one testing/synctest bubble is of no use in another
	opened   time.Time

	mu        sync.Mutex
	closed    bool
	deadlines deadlineTimer
	pauses    pauseWatch
	keys      map[namespace.Tag]*key
	pools     map[namespace.Tag]*key // of semaphores, whose slots are in keys
	spare     []*key                 // that nobody knows of
	used      int                    // keys that have a connection
	limit     int                    // of used; 0 = none

	notes   map[*Lock]*note    // of those that somebody wants to know more of
	conns   map[*conn]struct{} // all of them, also those that are being made or closed
	room    list[conn]         // that take another key; the next goes to the last of them
	redial  backoff            // between attempts to connect
	starved list[key]          // without a connection, and none may be made: in order
	polled  list[key]          // that wait for a key somebody else holds, without a connection to wait on
	polling bool               // somebody polls for those that are polled

	warned map[namespace.Tag]struct{}

	answers   *introspect.Membership // nil = there are none
	connected atomic.Int64           // len(conns), for who looks without mu
	lastID    uint64                 // of a request that was told of, under mu

	// verified is session.Status.Verified, but in the controls of tests.
	verified func(s session.Session, now time.Time) bool
}

func newCore(config Config, source session.Source) *core {
	c := &core{
		config:   config,
		source:   source,
		done:     make(chan struct{}),
		opened:   time.Now(),
		keys:     make(map[namespace.Tag]*key),
		pools:    make(map[namespace.Tag]*key),
		conns:    make(map[*conn]struct{}),
		notes:    make(map[*Lock]*note),
		warned:   make(map[namespace.Tag]struct{}),
		verified: func(s session.Session, now time.Time) bool { return s.Look(now, true).Verified },
	}
	c.setLimit()
	c.pauses.clock = boottime.Now
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// now is time.Now, with a wall clock that nobody sets: that one need not be read.
func (c *core) now() time.Time { return c.opened.Add(time.Since(c.opened)) }

const (
	share    = 20  // of the server's lock table, the default for one Locker
	minLocks = 100 // and its minimum
)

// setLimit follows the server's settings, which can change with a restart.
func (c *core) setLimit() {
	switch {
	case c.dedicated():
	case c.config.MaxLocks > 0:
		c.limit = c.config.MaxLocks
	default:
		c.limit = max(c.source.Stats().LockTable/share, minLocks)
	}
}

// dedicated reports whether a connection carries one lock at most.
func (c *core) dedicated() bool { return c.config.LocksPerConn == 1 }

// close ends waits with ErrClosed and held locks with a loss, and blocks until
// nothing of the Locker is left.
func (c *core) close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.done
		return
	}
	c.closed = true
	c.deadlines.stop()
	if c.pauses.timer != nil {
		c.pauses.timer.Stop()
	}
	c.cancel()
	for _, keys := range []map[namespace.Tag]*key{c.keys, c.pools} {
		for _, k := range keys {
			k.failAll(ErrClosed)
		}
	}
	for n := range c.conns {
		n.end(&session.LostError{Cause: ErrClosed})
	}
	c.mu.Unlock()
	c.answers.Leave()
	c.wg.Wait()
	c.source.Close()
	c.traceClose()
	close(c.done)
}

// background runs f on a goroutine that Close waits for; once Close has begun to
// wait, on the caller's own.
func (c *core) background(f func()) {
	c.mu.Lock()
	if c.closed {
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
