package advisory

import (
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/multiplex"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A queue is what this process knows of one key: who holds it here, who waits
// here, and the one attempt, if any, to get it from the server. All fields are
// guarded by core.mu; a queue exists while it has any of the three.
type queue struct {
	tag namespace.Tag
	// used: the room's session and its grant, which are never used again, because others
	// may still know of them.
	attached, granted bool

	grants   []*grant   // several only if all are shared
	requests []*request // in order of arrival
	campaign *campaign

	room struct { // for the usual one of each
		grants   [1]*grant
		requests [1]*request
		grant    grant
		session  multiplex.Session
	}
}

// A grant is the lock as the server gave it to a session, and its users in this
// process: one, or several readers.
type grant struct {
	queue   *queue
	session session.Session
	mode    session.Mode
	// alone: the session carries other locks too, so this one cannot pass to
	// anybody else.
	alone bool
	at    time.Time // when the server granted it
	users []*Lock
	cause error // why the grant was lost

	room [1]*Lock // for the usual user
}

// A request is a caller who waits for one key, until it is settled with a result.
type request struct {
	queue    *queue
	spare    *queue // for a key that has none yet
	lock     *Lock
	key      namespace.Key
	mode     session.Mode
	deadline time.Time       // zero = none
	own      session.Session // on which the lock must live; nil = any
	try      bool            // one attempt, no wait
	explain  bool            // a failed try asks who holds the key
	nested   bool            // the caller holds locks
	queued   bool            // it stood in line
	known    bool            // a goroutine that campaigns may look at it
	partial  []namespace.Key // those that it has and will hold together with this one
	start    time.Time

	// guarded by core.mu
	result  result
	settled bool
	awaited bool
	done    chan bool // of who awaits the result: true when it is there, false when the time is over

	expected      bool // by the alarm
	before, after *request
}

type result struct {
	err      error
	handOver bool
}

// queue returns a tag's queue, which is spare if there is none yet, under mu.
func (c *core) queue(tag namespace.Tag, spare *queue) *queue {
	if q := c.queues[tag]; q != nil {
		return q
	}
	q := spare
	q.tag = tag
	q.grants, q.requests = q.room.grants[:0], q.room.requests[:0]
	c.queues[tag] = q
	return q
}

// tidy forgets a queue that nobody needs. One that was forgotten before, while its
// last holder waited for an answer, may have a successor, which stays.
func (c *core) tidy(q *queue) {
	if len(q.grants) == 0 && len(q.requests) == 0 && q.campaign == nil && c.queues[q.tag] == q {
		delete(c.queues, q.tag)
	}
}

func (q *queue) first() *request {
	if len(q.requests) == 0 {
		return nil
	}
	return q.requests[0]
}

func (q *queue) pop() *request {
	r := q.requests[0]
	q.requests[0] = nil // a lock that is held keeps its queue, which need not keep the request
	if q.requests = q.requests[1:]; len(q.requests) == 0 {
		q.requests = q.room.requests[:0]
	}
	return r
}

// remove reports whether the request was still waiting.
func (q *queue) remove(r *request) bool {
	i := slices.Index(q.requests, r)
	if i < 0 {
		return false
	}
	q.requests = slices.Delete(q.requests, i, i+1)
	return true
}

// grant returns a grant that has no user yet, under core.mu.
func (q *queue) grant(s session.Session, mode session.Mode, at time.Time) *grant {
	g := &q.room.grant
	if q.granted {
		g = new(grant)
	}
	q.granted = true
	g.queue, g.session, g.mode, g.at = q, s, mode, at
	g.users = g.room[:0]
	q.grants = append(q.grants, g)
	return g
}

// attach returns a session for the queue's key that can be had without a wait, under
// core.mu, or nil.
func (c *core) attach(q *queue) session.Session {
	if c.virtual == nil {
		return nil
	}
	v := &q.room.session
	if q.attached {
		v = new(multiplex.Session)
	}
	if !c.virtual.Attach(v, q.tag) {
		return nil
	}
	q.attached = true
	return v
}

// compatible reports whether a lock of this mode can exist beside those that
// this process holds.
func (q *queue) compatible(mode session.Mode) bool {
	for _, g := range q.grants {
		if mode == session.Exclusive || g.mode == session.Exclusive {
			return false
		}
	}
	return true
}

// heir returns the request that the server lock may pass to, without a change of
// mode, when its last user leaves.
func (c *core) heir(g *grant, now time.Time) *request {
	r := g.queue.first()
	if r == nil || g.mode != session.Exclusive || r.mode != session.Exclusive || r.own != nil || !c.mayPass(g, now) {
		return nil
	}
	return g.queue.pop()
}

// joinable returns a shared grant that one more reader may use. Only within the
// budget: a session re-enters its own lock past a writer that is queued at the
// server, so readers that kept joining would starve it.
func (c *core) joinable(q *queue, r *request, now time.Time) *grant {
	if r.mode != session.Shared || r.own != nil || len(q.requests) > 0 {
		return nil
	}
	for _, g := range q.grants {
		if g.mode == session.Shared && c.mayPass(g, now) {
			return g
		}
	}
	return nil
}

// mayPass reports whether a server lock may go to another user of this process
// without being released: never while its session is in doubt or may have ended, and
// not beyond the budget, so that other processes get their turn.
func (c *core) mayPass(g *grant, now time.Time) bool {
	return !g.alone && now.Sub(g.at) < c.config.HandOverBudget && c.verified(g.session, now)
}

// settle gives the request its result, under mu, once.
func (r *request) settle(res result) {
	r.result, r.settled = res, true
	if r.expected {
		r.lock.core.alarm.forget(r)
	}
	if r.awaited {
		r.signal(true)
	}
}

// signal wakes who waits for the request, under mu. A second signal adds nothing.
func (r *request) signal(settled bool) {
	select {
	case r.done <- settled:
	default: // a signal is there
	}
}

// give makes a request's lock a user of the grant.
func (g *grant) give(r *request, handOver bool, now time.Time) {
	g.addUser(r.lock)
	if r.own == nil {
		r.lock.begin(now)
	}
	r.settle(result{handOver: handOver})
}

func (g *grant) addUser(l *Lock) {
	g.users = append(g.users, l)
	l.grants = append(l.grants, g)
}

// drop removes the grant from its queue, which need not keep its users. false: it was
// gone, and its session is another's care.
func (g *grant) drop() bool {
	i := slices.Index(g.queue.grants, g)
	if i < 0 {
		return false
	}
	g.queue.grants = slices.Delete(g.queue.grants, i, i+1)
	g.users, g.room = nil, [1]*Lock{}
	return true
}

// fail ends all requests of the queue with an error.
func (q *queue) fail(err func(*request) error) {
	for _, r := range q.requests {
		r.settle(result{err: err(r)})
	}
	q.requests = nil
}
