package leaseserver

import (
	"context"
	"errors"
	"runtime"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// release ends a lease. If the store can hand a lock over, the first waiter gets it by the same
// operation of the store; else the first waiter asks.
func (q *queue) release(ctx context.Context, c lease.Claim) error {
	defer q.slotReleased(c.Name) // if it is a slot's; a waiter that is woken checks
	w := q.heir(c.Name)
	q.unconfirm(c.Name)
	if w == nil {
		err := q.meter.release(ctx, c)
		if err == nil || wire.KindOf(err).Sentinel == nil { // or it may have been done
			q.wake(c.Name)
		}
		return err
	}
	o := outcome{asked: boottime.Present(), err: errHandOverUnknown}
	released := errHandOverUnknown
	defer func() {
		w.handOver <- o
		if released != nil && wire.KindOf(released).Sentinel == nil { // it may have been done
			q.wake(c.Name)
		}
		runtime.Gosched() // waiters need the lock sooner than the caller this answer
	}()
	o.lease, released, o.err = q.meter.handOver(ctx, c, w.request)
	return released
}

// errHandOverUnknown is a waiter's outcome if the store panicked.
var errHandOverUnknown = errors.New("leaseserver: nothing is known of a hand-over")

// heir returns the first waiter, for a hand-over: the waiter does nothing until it has the outcome.
// It returns nil if there is no waiter to hand the lock to.
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

// listen handles the outcome of a hand-over. If no request waits for the lease any more, it is
// given back like any other.
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

// wake makes the first waiter for a lock ask, because the lock may be free.
func (q *queue) wake(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lq := q.locks[name]
	if lq == nil {
		return
	}
	select {
	case lq.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}
