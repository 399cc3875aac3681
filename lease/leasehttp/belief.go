package leasehttp

import (
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/lease"
)

// note notes what the store said of the lock to a waiter that did not get it.
func (q *queue) note(ln *line, w *waiter, o outcome) {
	if held, ok := errors.AsType[*lease.HeldError](o.err); ok {
		q.believe(ln, w, o.asked, lease.Record{Lease: lease.Lease{Claim: lease.Claim{Holder: held.Holder}}, AvailableIn: held.Remaining})
	} else if busy, ok := errors.AsType[*lease.BusyError](o.err); ok {
		q.expect(ln, boottime.Present().Add(max(busy.Retry, shortest)))
	}
}

// errNotSaid is for a request whose time is over and that does not know whether the
// lock is kept: it asks, as one that does not wait.
var errNotSaid = errors.New("the store has not said whether the lock is kept")

// keptFor asks the store for how long the lock is kept; 0 = it can be free, or the
// request's own.
func (q *queue) keptFor(w *waiter, ln *line) time.Duration {
	asked := boottime.Present()
	q.doubt(w.request.Name)
	record, err := q.meter.get(w.ctx, w.request.Name)
	if err != nil { // unknown, or the store fails: let the acquire tell
		return 0
	}
	if record.State != lease.Held {
		record.Holder, record.ID = "", ""
	}
	if record.AvailableIn > 0 && q.believe(ln, w, asked, record) {
		return 0
	}
	return record.AvailableIn
}

// renewed tells that a lease lasts longer.
func (q *queue) renewed(l lease.Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln := q.lines[l.Name]; ln != nil && ln.holder == l.Holder {
		if due := boottime.Present().Add(l.Remaining); due.Sub(ln.due) > 0 && ln.due != (boottime.Moment{}) {
			ln.due = due
		}
	}
}

// mayHold reports whether a request could be one that has got the lease before, and
// whose answer was lost: it must not wait for itself.
func (q *queue) mayHold(r lease.AcquireRequest) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lines[r.Name]
	return ln != nil && ln.mayBeOf(r)
}

func (ln *line) mayBeOf(r lease.AcquireRequest) bool {
	return r.IdempotencyKey != "" && ln.holder == r.Holder && (ln.key == "" || ln.key == r.IdempotencyKey)
}

// believe notes what the store said, when it was asked, of a lock that is kept. It
// reports whether w should ask for its own lease.
func (q *queue) believe(ln *line, w *waiter, asked boottime.Moment, r lease.Record) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln.due, ln.heard = boottime.Present().Add(max(r.AvailableIn, shortest)), asked
	if r.ID == "" && r.Holder == ln.holder || r.ID != "" && r.ID == ln.id { // what is known of it is more
		return false
	}
	ln.holder, ln.key, ln.id = r.Holder, "", r.ID
	return r.Holder != "" && ln.findCopies(w)
}

// doubt is called before something that can end what is believed of a lock: until the
// store has answered, nobody is told that it is kept.
func (q *queue) doubt(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln := q.lines[name]; ln != nil {
		ln.heard = boottime.Moment{}
	}
}

func (q *queue) expect(ln *line, due boottime.Moment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln.due = due
}
