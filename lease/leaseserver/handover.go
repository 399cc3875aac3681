package leaseserver

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// release ends a lease. If the store can hand a lock over, the first waiter gets it by the same
// operation of the store; else the first waiter asks. If another server wants the lock, the waiters
// of this one stand back for a moment: otherwise they would keep passing it to each other.
func (q *queue) release(ctx context.Context, c lease.Claim) error {
	return q.releaseKeyed(ctx, lease.ReleaseRequest{Claim: c})
}

// releaseKeyed is release. A store that is a lease.KeyedReleaser keeps the request's key.
func (q *queue) releaseKeyed(ctx context.Context, r lease.ReleaseRequest) error {
	defer q.slotReleased(r.Name) // if it is a slot's; a waiter that is woken checks
	var w *waiter
	var ahead *preparation
	back := q.standsBack(r.Name)
	if back == 0 {
		w, ahead = q.heir(r.Name)
	}
	q.unconfirm(r.Name)
	if w == nil {
		err := q.meter.release(ctx, r)
		if err == nil || wire.KindOf(err).Sentinel == nil { // or it may have been done
			q.wakeIn(back, r.Name)
		}
		return err
	}
	o := outcome{asked: boottime.Present(), err: errHandOverUnknown}
	released := errHandOverUnknown
	defer func() {
		w.handOver <- o
		if released != nil && wire.KindOf(released).Sentinel == nil { // it may have been done
			q.wake(r.Name)
		}
		runtime.Gosched() // waiters need the lock sooner than the caller this answer
	}()
	prepared := ahead.use(&o, w.request.TTL)
	o.lease, released, o.err = q.meter.handOver(ctx, r, w.request, prepared)
	return released
}

// errHandOverUnknown is a waiter's outcome if the store panicked.
var errHandOverUnknown = errors.New("leaseserver: nothing is known of a hand-over")

// heir returns the first waiter, for a hand-over, and what was prepared for it: the waiter does
// nothing until it has the outcome. It returns nil if there is no waiter to hand the lock to.
func (q *queue) heir(name string) (*waiter, *preparation) {
	if !q.meter.canHandOver() {
		return nil, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	lq := q.locks[name]
	if lq == nil {
		return nil, nil
	}
	w := lq.waiters.Front().Value.(*waiter)
	if w.own || w.handed || gone(w.ctx) {
		return nil, nil
	}
	w.handed = true
	lq.passed = boottime.Present()
	ahead := w.ahead
	w.ahead = nil
	return w, ahead
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

const (
	// standBackTime is how long waiters stand back for the waiters of another server, which a message
	// wakes.
	standBackTime = 200 * time.Millisecond
	// deafTurns is how many poll intervals the waiters of a server that receives no messages pass a
	// lock to each other. After that they stand back until waiters elsewhere have polled.
	deafTurns = 10
)

// standsBack returns for how long the waiters for a lock must leave it to those of other servers; 0 =
// they need not.
func (q *queue) standsBack(name string) time.Duration {
	if q.meter.feed.isWanted(name) {
		return standBackTime
	}
	if q.poll <= 0 || !q.meter.feed.isDeaf() {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	lq := q.locks[name]
	switch now := boottime.Present(); {
	case lq == nil:
		return 0
	case lq.began == (boottime.Moment{}):
		lq.began = now
	case now.Sub(lq.began) > deafTurns*q.poll:
		lq.began = boottime.Moment{}
		return q.poll + q.poll*6/10 // a poll comes after one and a half at the latest
	}
	return 0
}

// wakeIn wakes the first waiter for a lock after a time in which this server's waiters leave it to
// others.
func (q *queue) wakeIn(back time.Duration, name string) {
	if back == 0 {
		q.wake(name)
		return
	}
	q.meter.feed.letGo(name)
	q.mu.Lock()
	if lq := q.locks[name]; lq != nil {
		lq.back = boottime.Present().Add(back)
	}
	q.mu.Unlock()
	time.AfterFunc(back, func() { q.wake(name) })
}

// wake makes the first waiter for a lock ask, because the lock may be free.
func (q *queue) wake(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if lq := q.locks[name]; lq != nil {
		lq.wakeUp()
	}
}

// wakeAll is wake for each lock.
func (q *queue) wakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lq := range q.locks {
		lq.wakeUp()
	}
}

func (lq *lockQueue) wakeUp() {
	select {
	case lq.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}
