package leaseserver

import (
	"context"
	"errors"
	"runtime"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// release ends a lease. The first waiter gets the lock by the same
// operation of the store, if the store can hand it over; else it asks. If the first of all
// servers' waiters is elsewhere, it is told to ask.
func (q *queue) release(ctx context.Context, c lease.Claim) error {
	defer q.slotReleased(c.Name) // if it may be one; whoever is woken looks
	elsewhere := q.peers.isElsewhere(c.Name)
	var w *waiter
	if !elsewhere {
		w = q.heir(c.Name)
	}
	q.unconfirm(c.Name)
	if w == nil {
		err := q.meter.release(ctx, c)
		if err == nil || wire.KindOf(err).Sentinel == nil { // or it can have been done
			q.next(c.Name, elsewhere)
		}
		return err
	}
	o := outcome{asked: boottime.Present(), err: errHandOverUnknown}
	released := errHandOverUnknown
	defer func() {
		w.handOver <- o
		if released != nil && wire.KindOf(released).Sentinel == nil { // it can have been done
			q.next(c.Name, false)
		}
		runtime.Gosched() // the lock is what others wait for, not this answer
	}()
	o.lease, released, o.err = q.meter.handOver(ctx, c, w.request)
	return released
}

// next tells the first who waits for a lock that it is free.
func (q *queue) next(name string, elsewhere bool) {
	if elsewhere && q.peers.free(name) || q.wake(name) {
		return
	}
	q.peers.free(name)
}

// errHandOverUnknown is what a waiter gets if the store panicked.
var errHandOverUnknown = errors.New("leaseserver: nothing is known of a hand-over")

// heir returns the first waiter, to hand the lock over to it: it does nothing then
// until it has the outcome. nil if nothing can be handed to anybody.
func (q *queue) heir(name string) *waiter {
	if !q.meter.canHandOver() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	lq := q.locks[name]
	if lq == nil {
		return nil
	}
	w := lq.waiters.Front().Value.(*waiter)
	if w.own || w.handed || gone(w.ctx) {
		return nil
	}
	w.handed = true
	return w
}

// listen takes what came of a hand-over. If the lease is one that nobody waits for
// any more it is given back, as any.
func (q *queue) listen(w *waiter, o outcome) *outcome {
	q.mu.Lock()
	w.handed, w.own = false, true
	if o.err != nil && w.got != nil {
		o = *w.got
	}
	q.mu.Unlock()
	if o.err == nil {
		o.lease, o.err = q.take(w.ctx, w.request, o.lease)
	}
	return &o
}

// wake lets the first waiter ask; false if nobody waits.
func (q *queue) wake(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	lq := q.locks[name]
	if lq == nil {
		return false
	}
	select {
	case lq.wake <- struct{}{}:
	default: // it is on its way
	}
	return true
}
