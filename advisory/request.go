package advisory

import (
	"math"
	"time"

	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/namespace"
)

// A request is a caller that waits for one key, or for the server to take keys back. While it sleeps, it can
// be appointed to drive a connection.
type request struct {
	locktable.Request
	call

	abroad []*Lock // locks that the caller holds with other Lockers on the database
	wake   chan struct{}
}

// A call is the part of a request that ends with the call.
type call struct {
	lock    *Lock
	name    namespace.Key
	slots   []namespace.Key // any one of which is enough; nil = it is for the key itself
	ended   <-chan struct{} // closed when its caller cancels it; nil = never
	explain bool            // if a try fails, query for the holder of the key
	partial []namespace.Key // keys that it has already and will hold together with this one
	wait    time.Duration
	start   locktable.Instant // 0 = it has not begun

	// guarded by core.mu
	place    int            // among the young, or in the heap of deadlines, from 1; 0 = in neither; expired = its time is over
	reason   error          // why it had no connection or answer when it was withdrawn; nil if it had
	line     int            // its place in the queue, from 1, when it began to wait; the tracer must receive it; 0 = it need not
	searches bool           // its caller must search for a cycle through other Lockers
	id       uint64         // its number; 0 = not assigned yet
	deadlock *deadlockError // the deadlock that this request gives up for

	asleep bool
	drives *conn // the connection that it must drive
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
	r.name, r.wait = key, wait
	r.Tag, r.Mode, r.Holder = key.Tag(), lock.mode, &lock.hold
	return r
}

// begin sets the start of a request and its deadline, unless it has begun.
func (r *request) begin(now locktable.Instant) {
	if r.start > 0 {
		return
	}
	r.start = now
	if r.wait != NoTimeout {
		r.Deadline = now + min(r.wait, math.MaxInt64-now) // the longest durations would overflow
	}
}

// answerIsDue reports whether the answer to the request's own try is worth waiting for, although its time is over:
// once, and unless the server has been slow already.
func (r *request) answerIsDue() bool {
	n := r.Asked()
	return n != nil && r.Deadline-r.start <= r.wait && !connOf(n).slow.Load()
}

// waited is how long ago the request began.
func (r *request) waited() time.Duration {
	if r.start == 0 {
		return 0
	}
	return r.lock.core.present() - r.start
}

// free returns a request to the pool. Nobody may refer to it any more.
func (r *request) free() {
	pool := &r.lock.core.requests
	r.Reset()
	r.call = call{}
	clear(r.abroad)
	r.abroad = r.abroad[:0]
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
