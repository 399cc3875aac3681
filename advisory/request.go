package advisory

import (
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

// slotOf returns the name of a slot.
func (r *request) slotOf(tag namespace.Tag) []namespace.Key {
	for i, slot := range r.slots {
		if slot.Tag() == tag {
			return r.slots[i : i+1 : i+1]
		}
	}
	return nil
}

// waitsBehind makes the caller report to the tracer that the request waits, under mu.
func (r *request) waitsBehind(ahead int) {
	if r.lock.core.config.Tracer.Wait != nil {
		r.line = ahead + 1
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
