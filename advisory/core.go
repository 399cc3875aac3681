package advisory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/multiplex"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A core is what all copies of a Locker share.
//
// Lock order: core.mu before Lock.mu. No mutex is held over I/O or a tracer.
type core struct {
	config  Config
	source  session.Source
	virtual *multiplex.Source // the source if sessions are multiplexed, else nil
	tracers tracers
	stats   counters

	ctx    context.Context // ends with Close; bounds campaigns
	cancel context.CancelFunc
	wg     sync.WaitGroup // campaigns and clean-ups
	done   chan struct{}  // closed when Close is through

	slots chan struct{} // one per session in use; nil if sessions are multiplexed

	requests sync.Pool // of *request
	opened   time.Time

	mu     sync.Mutex
	closed bool
	alarm  alarm
	pauses pauseWatch
	queues map[namespace.Tag]*queue
	spare  []*campaign           // that have ended
	nested map[*request]struct{} // waiting requests whose callers hold locks
	warned map[namespace.Tag]struct{}

	// verified is session.Session.Verified, but in the controls of tests.
	verified func(s session.Session, now time.Time) bool
}

func newCore(config Config, source session.Source) *core {
	c := &core{
		config:   config,
		source:   source,
		tracers:  newTracers(config.Tracer),
		done:     make(chan struct{}),
		opened:   time.Now(),
		queues:   make(map[namespace.Tag]*queue),
		nested:   make(map[*request]struct{}),
		warned:   make(map[namespace.Tag]struct{}),
		verified: session.Session.Verified,
	}
	if config.Multiplex > 0 {
		c.virtual = multiplex.New(source, multiplex.Config{
			Lines: config.Multiplex, Lanes: config.MaxConns - config.Multiplex, MaxLocks: config.MaxLocks,
		})
		c.source = c.virtual
	} else {
		c.slots = make(chan struct{}, config.MaxConns)
	}
	c.pauses.clock = boottime.Now
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// now is time.Now, with a wall clock that nobody sets: that one need not be read.
func (c *core) now() time.Time { return c.opened.Add(time.Since(c.opened)) }

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
	c.alarm.stop()
	if c.pauses.timer != nil {
		c.pauses.timer.Stop()
	}
	c.cancel()
	var grants []*grant
	for _, q := range c.queues {
		q.fail(func(r *request) error { return closedError(r.key) })
		if q.campaign != nil {
			q.campaign.stop()
		}
		for _, g := range q.grants {
			if g.users[0].complete { // else its acquisition, which fails now, clears it away
				grants = append(grants, g)
			}
		}
	}
	victims := c.dropAll(grants, ErrClosed)
	c.mu.Unlock()

	c.bury(victims, ErrClosed)
	c.wg.Wait()
	c.source.Close()
	close(c.done)
}

// A victim is a grant that was dropped, with the users it had.
type victim struct {
	session session.Session
	users   []*Lock
}

// dropAll takes the grants out of their queues, under mu. Each session comes
// once, with all users of its locks.
func (c *core) dropAll(grants []*grant, cause error) (victims []victim) {
	bySession := make(map[session.Session]int)
	for _, g := range grants {
		users := slices.Clone(g.users)
		if !g.drop() {
			continue
		}
		for _, l := range users {
			l.end()
		}
		g.cause = cause
		i, ok := bySession[g.session]
		if !ok {
			i = len(victims)
			bySession[g.session] = i
			victims = append(victims, victim{session: g.session})
		}
		victims[i].users = append(victims[i].users, users...)
		c.proceed(g.queue)
		c.tidy(g.queue)
	}
	return victims
}

// bury tells the users of lost grants and ends their sessions.
func (c *core) bury(victims []victim, cause error) {
	for _, v := range victims { // first: to end a session can take a while
		for _, lock := range v.users {
			_ = lock.lose(cause) // the lock keeps it
		}
	}
	for _, v := range victims {
		v.session.Kill(cause) // so that Close need not wait for an answer
		v.session.Close()
		c.freeSlot()
	}
}

// lost is the report of a session's loss with its grants.
func (c *core) lost(cause error, grants ...*grant) {
	c.mu.Lock()
	victims := c.dropAll(grants, cause)
	c.mu.Unlock()
	c.bury(victims, cause)
}
