package leasehttp

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// A queue lets requests wait for locks, first come, first served. Per lock only the
// first in the line asks the store: when a release through this server wakes it, when
// the lease that it waits for must have expired, and, for what other programs do with
// the store, after an interval, when it looks first whether asking can help.
type queue struct {
	meter   *meter
	max     int
	poll    time.Duration // negative = never
	closing chan struct{} // closed at shutdown

	mu      sync.Mutex
	waiting int
	lines   map[string]*line
}

// A line is the requests that wait for one lock. It exists as long as there are any.
type line struct {
	waiters list.List     // of *waiter
	wake    chan struct{} // of size one: the first should ask now

	// What is believed of the lock, guarded by queue.mu.
	due    time.Time // it can be granted; the zero Time = ask
	holder string    // "" = not known
	key    string    // the idempotency key of the holder; "" = not known
}

// A waiter is a request in a line.
type waiter struct {
	ctx     context.Context // of the request, and the time to wait
	request lease.AcquireRequest
	place   *list.Element
	turn    chan struct{} // closed when it becomes the first
	told    chan outcome  // of size one: what came of a hand-over

	// Guarded by queue.mu, and never both.
	own    bool // it asks the store itself, or is about to leave: nothing is handed to it
	handed bool // a hand-over to it is under way: it waits to be told
}

// An outcome is what the store answered to a waiter's request.
type outcome struct {
	lease lease.Lease
	asked time.Time // before the store was
	err   error
}

var errClosing = errors.New("the server shuts down")

func newQueue(c *Config, m *meter) *queue {
	return &queue{meter: m, max: c.MaxWaiters, poll: c.PollInterval, closing: make(chan struct{}), lines: make(map[string]*line)}
}

// acquire asks for a lease, and waits for it for as long as wait. The duration is the
// time between the call and the operation of the store that got the lease.
func (q *queue) acquire(ctx context.Context, r lease.AcquireRequest, wait time.Duration) (lease.Lease, time.Duration, error) {
	start := time.Now()
	if wait <= 0 || q.mayHold(r) {
		l, err := q.try(ctx, r)
		if err == nil {
			q.granted(r, l)
		}
		if wait <= 0 || !errors.Is(err, lease.ErrHeld) {
			return l, 0, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errWaited)
	defer cancel()
	ln, w := q.join(ctx, r)
	if w == nil {
		return lease.Lease{}, 0, &lease.BusyError{Retry: jitter(time.Second), Cause: errors.New("too many requests wait")}
	}
	o := q.stand(ln, w)
	if errors.Is(o.err, lease.ErrHeld) && q.mayHold(r) { // an earlier sending of it may have got the lease
		o.asked = time.Now()
		o.lease, o.err = q.try(ctx, r)
	}
	q.leave(ln, w, o)
	if o.err != nil {
		return lease.Lease{}, 0, o.err
	}
	return o.lease, o.asked.Sub(start), nil
}

var errWaited = errors.New("the time to wait is over")

// stand waits for the place to become the first, and then for the lock.
func (q *queue) stand(ln *line, w *waiter) outcome {
	select {
	case <-w.turn: // also if the time is over: everybody asks once at least, if nobody is before
	default:
		var err error
		select {
		case <-w.turn:
		case <-w.ctx.Done():
			err = q.giveUp(ln, w)
		case <-q.closing:
			err = q.giveUp(ln, w)
		}
		if err != nil {
			return outcome{err: err}
		}
	}
	for {
		o, err := q.await(ln, w)
		if err != nil {
			return outcome{err: err}
		}
		if o == nil {
			o = &outcome{asked: time.Now()}
			o.lease, o.err = q.try(w.ctx, w.request)
		}
		if held, ok := errors.AsType[*lease.HeldError](o.err); ok {
			q.believe(ln, held.Remaining, held.Holder)
		} else if busy, ok := errors.AsType[*lease.BusyError](o.err); ok {
			q.expect(ln, time.Now().Add(max(busy.Retry, shortest)))
		} else {
			return *o
		}
		q.mu.Lock()
		w.own = false
		q.mu.Unlock()
	}
}

// shortest keeps the first waiter from asking without a pause.
const shortest = time.Millisecond

// await blocks until the first of the line is told of a hand-over, or should ask the
// store itself: then it returns neither an outcome nor an error.
func (q *queue) await(ln *line, w *waiter) (*outcome, error) {
	for {
		q.mu.Lock()
		remaining := time.Until(ln.due)
		w.own = !w.handed && remaining <= 0
		handed, own := w.handed, w.own
		q.mu.Unlock()
		switch {
		case handed:
			return q.listen(w, <-w.told), nil
		case own && gone(w.ctx):
			return nil, context.Cause(w.ctx)
		case own:
			return nil, nil
		}
		sleep := remaining
		if q.poll > 0 {
			sleep = min(sleep, jitter(q.poll))
		}
		timer := time.NewTimer(sleep)
		var err error
		select {
		case o := <-w.told:
			timer.Stop()
			return q.listen(w, o), nil
		case <-ln.wake:
			q.expect(ln, time.Time{})
		case <-timer.C:
			if sleep < remaining && q.keptFor(w, ln) == 0 {
				q.expect(ln, time.Time{})
			}
		case <-w.ctx.Done():
			err = q.giveUp(ln, w)
		case <-q.closing:
			err = q.giveUp(ln, w)
		}
		timer.Stop()
		if err != nil {
			return nil, err
		}
	}
}

// keptFor looks how long the lock cannot be granted, without a change of the store.
func (q *queue) keptFor(w *waiter, ln *line) time.Duration {
	record, err := q.meter.get(w.ctx, w.request.Name)
	if err != nil { // unknown, or the store fails: let the acquire tell
		return 0
	}
	if record.AvailableIn > 0 {
		holder := record.Holder
		if record.State != lease.Held {
			holder = ""
		}
		q.believe(ln, record.AvailableIn, holder)
	}
	return record.AvailableIn
}

// try asks the store.
func (q *queue) try(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	l, err := q.meter.acquire(ctx, r)
	if err != nil {
		return l, err
	}
	return q.take(ctx, r, l)
}

// take returns a lease that was granted. One that nobody waits for any more is given
// back, unless the client can ask for it again by its idempotency key.
func (q *queue) take(ctx context.Context, r lease.AcquireRequest, l lease.Lease) (lease.Lease, error) {
	if r.IdempotencyKey == "" && gone(ctx) {
		_ = q.release(ctx, l.Claim) // else it expires
		return lease.Lease{}, context.Cause(ctx)
	}
	return l, nil
}

// gone reports whether the client hung up: a wait that is over ends ctx too.
func gone(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), errWaited)
}

// length is how many requests wait.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// join makes a request the last of a line; nil if too many wait.
func (q *queue) join(ctx context.Context, r lease.AcquireRequest) (*line, *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == q.max {
		return nil, nil
	}
	q.waiting++
	ln := q.lines[r.Name]
	if ln == nil {
		ln = &line{wake: make(chan struct{}, 1)}
		q.lines[r.Name] = ln
	}
	w := &waiter{ctx: ctx, request: r, turn: make(chan struct{}), told: make(chan outcome, 1)}
	w.place = ln.waiters.PushBack(w)
	if ln.waiters.Front() == w.place {
		close(w.turn)
	}
	return ln, w
}

// leave takes a request out of the line. If it was the first and got no lease, and
// it is not known for how long the lock is kept, the next one asks.
func (q *queue) leave(ln *line, w *waiter, o outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting--
	first := ln.waiters.Front() == w.place
	ln.waiters.Remove(w.place)
	if o.err == nil {
		ln.grant(w.request, o.lease)
	}
	switch next := ln.waiters.Front(); {
	case next == nil:
		delete(q.lines, w.request.Name)
	case first:
		close(next.Value.(*waiter).turn)
	}
}

// granted tells the line, if there is one, of a lease that was got beside it.
func (q *queue) granted(r lease.AcquireRequest, l lease.Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln := q.lines[r.Name]; ln != nil {
		ln.grant(r, l)
	}
}

func (ln *line) grant(r lease.AcquireRequest, l lease.Lease) {
	ln.due = time.Now().Add(l.Remaining + r.LockDelay)
	ln.holder, ln.key = r.Holder, r.IdempotencyKey
}

// renewed tells that a lease lasts longer.
func (q *queue) renewed(l lease.Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln := q.lines[l.Name]; ln != nil && ln.holder == l.Holder {
		if due := time.Now().Add(l.Remaining); due.After(ln.due) && !ln.due.IsZero() {
			ln.due = due
		}
	}
}

// mayHold reports whether a request could be one that has got the lease before, and
// whose answer was lost: it must not wait for itself.
func (q *queue) mayHold(r lease.AcquireRequest) bool {
	if r.IdempotencyKey == "" {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lines[r.Name]
	return ln != nil && ln.holder == r.Holder && (ln.key == "" || ln.key == r.IdempotencyKey)
}

// believe notes what the store said of a lock that is kept.
func (q *queue) believe(ln *line, remaining time.Duration, holder string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln.due = time.Now().Add(max(remaining, shortest))
	ln.holder, ln.key = holder, ""
}

func (q *queue) expect(ln *line, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln.due = due
}

// giveUp is the error for a request that got nothing; nil if it has to wait for what
// comes of a hand-over.
func (q *queue) giveUp(ln *line, w *waiter) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.handed {
		return nil
	}
	w.own = true
	select {
	case <-q.closing:
		return &lease.BusyError{Retry: jitter(time.Second), Cause: errClosing}
	default:
	}
	if gone(w.ctx) {
		return context.Cause(w.ctx)
	}
	remaining := max(time.Until(ln.due), shortest)
	return &lease.HeldError{Name: w.request.Name, Holder: ln.holder, Remaining: remaining, Retry: min(jitter(remaining), jitter(time.Second))}
}
