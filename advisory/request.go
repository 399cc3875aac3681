package advisory

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A request is a caller who waits for one key, or for the server to take some back.
// While it sleeps it can be asked to drive a connection.
type request struct {
	key      *key
	lock     *Lock
	name     namespace.Key
	mode     session.Mode
	slots    []namespace.Key // one of which will do; nil = it is for the key itself
	gateTag  namespace.Tag   // the semaphore's turnstile
	deadline time.Time       // zero = none
	try      bool            // one attempt, no wait
	explain  bool            // a failed try asks who holds the key
	part     bool            // of a lock that is not complete with this key
	nested   bool            // the caller holds locks
	outer    []*Lock         // that stay held until it is served: its caller holds them, or they are to be complete with it
	partial  []namespace.Key // those that it has and will hold together with this one
	start    time.Time

	// guarded by core.mu
	inQueue   node[request]
	inTimer   node[request]
	settled   bool
	err       error // what it was settled with, or why it had no connection or answer
	handOver  bool
	left      int            // operations that are to be answered before it is settled
	expired   bool           // its time is over
	prolonged bool           // for an answer that is on its way
	waits     bool           // the tracer is to be told that it does
	traced    bool           // it was
	ahead     int            // of it in the queue then
	id        uint64         // for those who ask; 0 = nobody has
	deadlock  *DeadlockError // in which it is the one to give up

	asleep bool
	drives *conn // to be driven
	wake   chan struct{}
}

// tell has the tracer told, once, that the request waits, under mu.
func (r *request) tell(ahead int) {
	if r.traced || r.lock.core.config.Tracer.Wait == nil {
		return
	}
	r.traced, r.waits, r.ahead = true, true, ahead
	r.wakeUp()
}

// answered counts an operation that was answered, under mu.
func (r *request) answered(err error) {
	if err != nil && r.err == nil {
		r.err = err
	}
	if r.left--; r.left == 0 {
		r.settle(r.err)
	}
}

// settle ends the request, under mu, once.
func (r *request) settle(err error) {
	if r.settled {
		return
	}
	r.settled, r.err = true, err
	r.done()
	r.wakeUp()
}

// wakeUp wakes the request, if it sleeps, under mu.
func (r *request) wakeUp() {
	if r.asleep {
		r.asleep = false
		r.wake <- struct{}{}
	}
}

// withdraw takes a request out of its queue, under mu, and says why it had no connection,
// or no answer, if that was so.
func (c *core) withdraw(r *request) (reason error) {
	k := r.key
	reason = k.reason()
	first := k.requests.peek() == r
	k.requests.remove(&r.inQueue)
	k.waiting--
	r.done()
	switch next := k.requests.peek(); {
	case next == nil:
		k.abandon()
	case first && k.phase == waiting:
		k.interrupt() // it may wait in the mode of the one that left
	}
	k.advance()
	return reason
}

// done forgets the request where it is known, but in its queue, under mu.
func (r *request) done() {
	c := r.lock.core
	c.deadlines.forget(r)
	for _, l := range r.outer {
		delete(l.inside, r)
	}
	if r.lock.pending == r {
		r.lock.pending = nil
	}
	if r.key != nil && r.key.op.by == r {
		r.key.op.by = nil
	}
}

// gaveUp is the error of a request that was withdrawn. A canceled caller gets it
// at once; one whose time ran out also learns who holds the lock.
func (c *core) gaveUp(ctx context.Context, r *request) error {
	if r.deadlock != nil {
		return r.deadlock
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return canceled(ctx, r.name)
	}
	if r.err != nil {
		return c.explain(r, r.err)
	}
	e := &TimeoutError{Key: r.name, Waited: time.Since(r.start), Cause: context.Cause(ctx), held: true}
	if r.slots == nil {
		e.Holder = c.holder(r.name.Tag())
		return e
	}
	e.Slots = len(r.slots)
	tags := make([]namespace.Tag, 0, maxHolders)
	for _, slot := range r.slots[:min(len(r.slots), maxHolders)] {
		tags = append(tags, slot.Tag())
	}
	e.Holders = c.holders(tags)
	return e
}
