package leaseserver

import (
	"container/list"
	"context"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/lease"
)

// A waiter is a request that waits for a lock.
type waiter struct {
	ctx      context.Context // of the request, and the time to wait
	request  lease.AcquireRequest
	place    *list.Element
	joined   boottime.Moment
	turn     chan struct{} // closed when it becomes the first
	handOver chan outcome  // of size one: the outcome of a hand-over
	news     chan struct{} // of size one: got or look was set

	// Guarded by queue.mu, and never both.
	own    bool // it asks the store itself, or is about to leave: no hand-over to it
	handed bool // a hand-over to it is in progress: it waits for the outcome

	// Guarded by queue.mu.
	ahead *preparation // of a hand-over to it; nil = none

	// Guarded by queue.mu.
	got  *outcome // another sending of the request got this lease; nil = none did
	look bool     // another sending of the request may have got the lease: it should ask
}

// An outcome is the store's answer to a waiter's request.
type outcome struct {
	lease lease.Lease
	asked boottime.Moment // before the store was asked
	ahead bool            // a part of it was asked before the release
	err   error
}

// since returns the outcome for a request that came at start. The time of a lease counts from
// start plus the returned duration.
func (o outcome) since(start boottime.Moment) (lease.Lease, time.Duration, error) {
	if o.err != nil {
		return lease.Lease{}, 0, o.err
	}
	if waited := o.asked.Mono.Sub(start.Mono); waited >= 0 {
		return o.lease, waited, nil
	}
	// Another sending of the request asked before this one came.
	o.lease.Remaining = max(o.lease.Remaining-start.Sub(o.asked), 0)
	return o.lease, 0, nil
}

// join appends a request to its lock's queue; nil if too many wait.
func (q *queue) join(ctx context.Context, r lease.AcquireRequest) (*lockQueue, *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == q.max {
		return nil, nil
	}
	q.waiting++
	lq := q.locks[r.Name]
	if lq == nil {
		lq = &lockQueue{wake: make(chan struct{}, 1)}
		q.locks[r.Name] = lq
	}
	w := &waiter{ctx: ctx, request: r, joined: boottime.Present(), turn: make(chan struct{}), handOver: make(chan outcome, 1), news: make(chan struct{}, 1)}
	w.place = lq.waiters.PushBack(w)
	lq.enter(w)
	if lq.waiters.Front() == w.place {
		close(w.turn)
	}
	return lq, w
}

// leave removes a request from the queue and returns its answer. Another sending of it may have got
// the lease at the last moment. The next sending of it takes its place. If the request was the first,
// it is the turn of the next one.
func (q *queue) leave(lq *lockQueue, w *waiter, o outcome) outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting--
	first := lq.waiters.Front() == w.place
	lq.bequeath(w)
	lq.waiters.Remove(w.place)
	lq.quit(w)
	switch {
	case o.err == nil && (w.got == nil || w.got.lease.ID != o.lease.ID): // else the grant is known, and perhaps released since
		lq.grant(w.request, o)
	case o.err != nil && w.got != nil:
		o = *w.got
	}
	switch next := lq.waiters.Front(); {
	case next == nil:
		delete(q.locks, w.request.Name)
	case first:
		close(next.Value.(*waiter).turn)
	}
	return o
}
