package leaseserver

import (
	"context"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/lease"
)

// A preparer is a store that can do a part of a hand-over before the release.
type preparer interface {
	// PrepareHandOver does that part. The lease of handOver then lasts from no earlier than the call of
	// PrepareHandOver. The caller calls handOver or cancel, once. Both are nil if there is nothing to
	// prepare.
	PrepareHandOver(ctx context.Context, next lease.AcquireRequest) (
		handOver func(context.Context, lease.ReleaseRequest) (l lease.Lease, released, acquired error), cancel func(), err error)
}

type handOverFunc = func(context.Context, lease.ReleaseRequest) (l lease.Lease, released, acquired error)

const (
	// aheadAge is how old a preparation may be. The lease is shorter by as much.
	aheadAge = time.Second
	// aheadShare limits the age of a preparation to this fraction of the TTL: a twentieth.
	aheadShare = 20
	// aheadTime bounds the wait for the store.
	aheadTime = 250 * time.Millisecond
)

// A preparation is the part of a hand-over that was done before the release.
type preparation struct {
	asked    boottime.Moment // before the store was asked
	done     chan struct{}   // closed when the others can be read
	handOver handOverFunc
	undo     func() // nil = there is nothing to undo
}

// prepare prepares a hand-over to the first waiter, if the lock is passed on quickly. Otherwise the
// preparation would be too old by the release.
func (q *queue) prepare(lq *lockQueue, w *waiter) {
	p := &preparation{asked: boottime.Present(), done: make(chan struct{})}
	if q.meter.ahead == nil || !q.beginAhead(lq, w, p) {
		return
	}
	defer close(p.done)
	ctx, cancel := context.WithTimeout(w.ctx, aheadTime)
	defer cancel()
	p.handOver, p.undo, _ = q.meter.ahead.PrepareHandOver(ctx, w.request) // after an error the hand-over does all
}

func (q *queue) beginAhead(lq *lockQueue, w *waiter, p *preparation) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	passed := lq.passed != (boottime.Moment{}) && p.asked.Sub(lq.passed) < aheadLimit(w.request.TTL)
	if !passed || w.handed || w.got != nil || w.look || lq.due.Until() <= 0 {
		return false
	}
	w.ahead = p
	return true
}

// takeAhead returns what was prepared for a waiter; nil = nothing, or it was taken.
func (q *queue) takeAhead(w *waiter) *preparation {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := w.ahead
	w.ahead = nil
	return p
}

// aheadLimit returns how old a preparation of a lease may be.
func aheadLimit(ttl time.Duration) time.Duration { return min(aheadAge, ttl/aheadShare) }

// use returns the prepared hand-over, and sets from when its lease counts; nil if nothing was
// prepared, or too long ago. It waits for a preparation that is under way: a hand-over without it
// would take longer.
func (p *preparation) use(o *outcome, ttl time.Duration) handOverFunc {
	if p == nil {
		return nil
	}
	<-p.done
	if p.handOver == nil || boottime.Present().Sub(p.asked) > aheadLimit(ttl) {
		p.cancel()
		return nil
	}
	o.asked, o.ahead = p.asked, true
	return p.handOver
}

// cancel gives back a preparation that was not used.
func (p *preparation) cancel() {
	if p != nil && p.undo != nil {
		p.undo()
	}
}
