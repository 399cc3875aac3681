package advisory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/namespace"
)

// A request is a caller that waits for one key, or for the server to take keys back. While it sleeps, it can
// be appointed to drive a connection.
type request struct {
	locktable.Request

	lock     *Lock
	name     namespace.Key
	slots    []namespace.Key // any one of which is enough; nil = it is for the key itself
	deadline time.Time       // zero = none
	ended    <-chan struct{} // closed when its caller cancels it; nil = never
	explain  bool            // if a try fails, query for the holder of the key
	abroad   []*Lock         // locks that the caller holds with other Lockers on the database
	partial  []namespace.Key // keys that it has already and will hold together with this one
	start    time.Time

	// guarded by core.mu
	place    int            // in the heap of deadlines, from 1; 0 = not in the heap; expired = its time is over
	reason   error          // why it had no connection or answer when it was withdrawn; nil if it had
	line     int            // its place in the queue, from 1, when it began to wait; the tracer must receive it; 0 = it need not
	searches bool           // its caller must search for a circle through other Lockers
	id       uint64         // its number; 0 = not assigned yet
	deadlock *deadlockError // the deadlock that this request gives up for

	asleep bool
	drives *conn // the connection that it must drive
	wake   chan struct{}
}

func requestOf(r *locktable.Request) *request {
	return r.Carrier.(*request) //nolint:forcetypeassert // newRequest sets it
}

func (c *core) newRequest(lock *Lock) *request {
	r, ok := c.requests.Get().(*request)
	if !ok {
		r = new(request)
		r.Carrier = r
	}
	r.lock = lock
	return r
}

// newAcquire returns a request for a key of a lock.
func newAcquire(lock *Lock, key namespace.Key, wait time.Duration) *request {
	c := lock.core
	r := c.newRequest(lock)
	r.name, r.start = key, c.now()
	r.Tag, r.Mode, r.Holder = key.Tag(), lock.mode, &lock.hold
	if wait != NoTimeout {
		r.expire(r.start.Add(wait))
	}
	return r
}

// expire sets the deadline.
func (r *request) expire(at time.Time) {
	r.deadline = at
	r.Deadline = 0
	if !at.IsZero() {
		r.Deadline = max(r.lock.core.instant(at), 1)
	}
}

// free returns a request to the pool. Nobody may refer to it any more.
func (r *request) free() {
	pool := &r.lock.core.requests
	r.Reset()
	clear(r.abroad)
	*r = request{Request: r.Request, wake: r.wake, abroad: r.abroad[:0]}
	pool.Put(r)
}

// nested reports whether the caller holds locks of this Locker, under mu.
func (r *request) nested() bool { return len(r.Outer()) > 0 }

// settled handles a request that the table has settled, under mu.
func (r *request) settled() {
	c := r.lock.core
	r.forgotten()
	if r.Key() != nil && r.Err() == nil {
		if r.slots != nil {
			r.lock.keys = r.slotOf(r.lock.hold.Slot())
		}
		if !r.Part {
			c.began(r.lock)
		}
	}
	r.wakeUp()
}

// slotOf returns the name of a slot.
func (r *request) slotOf(tag namespace.Tag) []namespace.Key {
	for i, slot := range r.slots {
		if slot.Tag() == tag {
			return r.slots[i : i+1 : i+1]
		}
	}
	return nil
}

// forgotten removes the request from the records that the table does not keep, under mu.
func (r *request) forgotten() {
	c := r.lock.core
	c.deadlines.forget(r)
	c.database.forget(r)
}

// waitsBehind makes the caller report to the tracer that the request waits, under mu.
func (r *request) waitsBehind(ahead int) {
	if r.lock.core.config.Tracer.Wait != nil {
		r.line = ahead + 1
		r.wakeUp()
	}
}

// suspect makes the caller search for a circle through other Lockers of the process that the wait may close,
// under mu.
func (r *request) suspect() {
	if r.lock.core.database.shared() {
		r.searches = true
		r.wakeUp()
	}
}

// identify returns the request's number. It is called under core.mu, or once the request has a number.
func (r *request) identify() uint64 {
	if r.id == 0 {
		c := r.lock.core
		c.lastID++
		r.id = c.lastID
	}
	return r.id
}

// wakeUp wakes the request, if it sleeps, under mu.
func (r *request) wakeUp() {
	if r.asleep {
		r.asleep = false
		r.wake <- struct{}{}
	}
}

// grace is how long a caller whose time is over waits for an answer that is on its way. An answer is more
// informative than a timeout.
const grace = 200 * time.Millisecond

// await returns true when the request is settled. It returns false when the request was withdrawn because its
// context or its time ended, or because it is the one to end in a deadlock. await is called under mu, and
// unlocks it.
func (c *core) await(r *request) (settled bool) {
	canceled := false
	for !r.Settled() {
		switch {
		case r.drives != nil:
			n := r.drives
			r.drives = nil
			n.drive(false)
		case r.line > 0:
			ahead := r.line - 1
			r.line = 0
			c.unlocked(func() { c.traceWait(r, ahead) })
		case r.searches:
			r.searches = false
			c.unlocked(func() { c.database.search(r) })
		case r.place == expired && !canceled && r.deadlock == nil && c.table.AnswerIsDue(&r.Request):
			r.place = 0
			r.expire(time.Now().Add(grace))
		case canceled || r.place == expired || r.deadlock != nil:
			r.reason = c.table.Withdraw(&r.Request, c.present())
			r.forgotten()
			c.run()
			c.handOn(r)
			c.mu.Unlock()
			return false
		default:
			canceled = c.sleep(r)
		}
	}
	c.handOn(r) // it may have been settled at the same moment
	c.mu.Unlock()
	return true
}

// handOn appoints another driver for the connection that the request was to drive, under mu.
func (c *core) handOn(r *request) {
	if n := r.drives; n != nil {
		r.drives = nil
		n.appoint()
	}
}

// unlocked calls f without mu.
func (c *core) unlocked(f func()) {
	c.mu.Unlock()
	defer c.mu.Lock()
	f()
}

// sleep waits until the request is woken, under mu, which it releases meanwhile. It reports whether the
// context ended instead.
func (c *core) sleep(r *request) (canceled bool) {
	if r.wake == nil {
		r.wake = make(chan struct{}, 1)
	}
	c.expect(r)
	r.asleep = true
	c.mu.Unlock()
	if r.Key() != nil {
		c.stats.waiting.Add(1)
		defer c.stats.waiting.Add(-1)
	}
	if r.ended == nil {
		<-r.wake
		c.mu.Lock()
		return false
	}
	select {
	case <-r.wake:
		c.mu.Lock()
		return false
	case <-r.ended:
	}
	c.mu.Lock()
	if !r.asleep {
		<-r.wake
	}
	r.asleep = false
	return true
}

// gaveUp returns the error of a withdrawn request. A canceled caller gets it at once. If the time ran out,
// the error also names the holder.
func (c *core) gaveUp(ctx context.Context, r *request) error {
	if r.deadlock != nil {
		return r.deadlock
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return canceled(ctx, r.name)
	}
	if r.reason != nil {
		return c.explain(r, r.reason)
	}
	e := &TimeoutError{Key: r.name, Waited: time.Since(r.start), Cause: context.Cause(ctx), held: true}
	if r.slots == nil {
		e.Holder, e.remark = c.holder(r.name.Tag())
		return e
	}
	e.Slots = len(r.slots)
	tags := make([]namespace.Tag, 0, maxHolders)
	for _, slot := range r.slots[:min(len(r.slots), maxHolders)] {
		tags = append(tags, slot.Tag())
	}
	e.Holders, e.remark = c.holders(tags)
	return e
}

// errLeft means that the server did not answer in time.
var errLeft = errors.New("no answer from the server in time")

// explain types an error of a session or of the table for one request. It is not called under mu, because the
// context of a lock checks its lock.
func (c *core) explain(r *request, err error) error {
	switch err.(type) { //nolint:errorlint // the error itself, and not something that it wraps
	case nil, *reentrantError, *deadlockError:
		return err
	}
	ctx, waited := r.lock.parent, time.Since(r.start)
	switch {
	case errors.Is(err, locktable.ErrTaken):
		return c.heldError(r)
	case c.ctx.Err() != nil:
		return closedError(r.name)
	case errors.Is(ctx.Err(), context.Canceled):
		return canceled(ctx, r.name)
	case errors.Is(err, locktable.ErrNoConn):
		e := &poolExhaustedError{Key: r.name, MaxConns: c.config.MaxConns, Waited: waited, Cause: context.Cause(ctx)}
		if len(r.partial) > 0 || r.lock.around != nil {
			e.Outer = c.heldBy(r)
		}
		return e
	case errors.Is(err, locktable.ErrDialing), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("advisory: lock %v: %w: no connection within %v: %w", r.name, ErrUnavailable, waited.Round(time.Millisecond), context.DeadlineExceeded)
	case errors.Is(err, locktable.ErrNoReply):
		return fmt.Errorf("advisory: lock %v: %w: the connection ended: %w", r.name, ErrUnavailable, errLeft)
	case errors.Is(err, ErrLockTableFull):
		return c.tableFull(r.name, err)
	case errors.Is(err, ErrLost):
		return fmt.Errorf("advisory: lock %v: %w: the connection ended: %w", r.name, ErrUnavailable, errors.Unwrap(err))
	}
	return fmt.Errorf("advisory: lock %v: %w", r.name, err)
}

// translate names the locks in an error of the table, under mu.
func (c *core) translate(r *request, err error) error {
	switch e := err.(type) { //nolint:errorlint // the table's own
	case *locktable.ReentrantError:
		held, _ := lockOf(e.Holder).has(r)
		return &reentrantError{Key: r.name, Held: held}
	case *locktable.DeadlockError:
		named := &deadlockError{}
		for _, w := range e.Cycle {
			named.Cycle = append(named.Cycle, requestOf(w).name)
		}
		return named
	}
	return err
}
