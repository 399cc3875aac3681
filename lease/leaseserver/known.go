package leaseserver

import (
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/lease"
)

// note records the store's answer about the lock to a waiter that did not get it.
func (q *queue) note(lq *lockQueue, w *waiter, o outcome) {
	if held, ok := errors.AsType[*lease.HeldError](o.err); ok {
		q.noteHeld(lq, w, o.asked, lease.Record{Lease: lease.Lease{Claim: lease.Claim{Holder: held.Holder}}, AvailableIn: held.Remaining})
	} else if busy, ok := errors.AsType[*lease.BusyError](o.err); ok {
		q.expect(lq, boottime.Present().Add(max(busy.Retry, shortest)))
	}
}

// errNotSaid is the error of a request whose wait is over while it is unknown whether the lock is
// kept. The request then asks the store, like one that does not wait.
var errNotSaid = errors.New("the store has not said whether the lock is kept")

// keptFor asks the store for how long the lock is kept; 0 = it may be free, or held by an earlier
// sending of the request.
func (q *queue) keptFor(w *waiter, lq *lockQueue) time.Duration {
	asked := boottime.Present()
	q.unconfirm(w.request.Name)
	record, err := q.meter.get(w.ctx, w.request.Name)
	if err != nil { // unknown, or the store fails: the acquire finds out
		return 0
	}
	if record.State != lease.Held {
		record.Holder, record.ID = "", ""
	}
	if record.AvailableIn > 0 && q.noteHeld(lq, w, asked, record) {
		return 0
	}
	return record.AvailableIn
}

// renewed records that a lease lasts longer.
func (q *queue) renewed(l lease.Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if lq := q.locks[l.Name]; lq != nil && lq.holder == l.Holder {
		if due := boottime.Present().Add(l.Remaining); due.Sub(lq.due) > 0 && lq.due != (boottime.Moment{}) {
			lq.due = due
		}
	}
}

// mayHold reports whether an earlier sending of a request may have got the lease, with its answer
// lost. Then the request must not wait for itself.
func (q *queue) mayHold(r lease.AcquireRequest) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	lq := q.locks[r.Name]
	return lq != nil && lq.mayBeOf(r)
}

func (lq *lockQueue) mayBeOf(r lease.AcquireRequest) bool {
	return r.IdempotencyKey != "" && lq.holder == r.Holder && (lq.key == "" || lq.key == r.IdempotencyKey)
}

// noteHeld records the store's answer, given the time of the question, about a lock that is kept.
// It reports whether w should ask for its own lease.
func (q *queue) noteHeld(lq *lockQueue, w *waiter, asked boottime.Moment, r lease.Record) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	lq.due, lq.confirmed = boottime.Present().Add(max(r.AvailableIn, shortest)), asked
	if r.ID == "" && r.Holder == lq.holder || r.ID != "" && r.ID == lq.id { // the queue already knows more about it
		return false
	}
	lq.holder, lq.key, lq.id, lq.ours = r.Holder, "", r.ID, false
	return r.Holder != "" && lq.findCopies(w)
}

// unconfirm is called before an operation that can change the state of a lock. Until the store has
// answered, no answer says that the lock is kept.
func (q *queue) unconfirm(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if lq := q.locks[name]; lq != nil {
		lq.confirmed = boottime.Moment{}
	}
}

func (q *queue) expect(lq *lockQueue, due boottime.Moment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lq.due = due
}
