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
	waiters list.List     // of chan struct{}, closed when its owner becomes the first
	wake    chan struct{} // of size one: the first should ask now

	// What is believed of the lock, guarded by queue.mu.
	due    time.Time // it can be granted; the zero Time = ask
	holder string    // "" = not known
	key    string    // the idempotency key of the holder; "" = not known
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
	ln, place := q.join(r.Name)
	if ln == nil {
		return lease.Lease{}, 0, &lease.BusyError{Retry: jitter(time.Second), Cause: errors.New("too many requests wait")}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errWaited)
	defer cancel()
	l, asked, err := q.stand(ctx, r, ln, place)
	q.leave(r, ln, place, l, err)
	if err == nil {
		return l, asked.Sub(start), nil
	}
	return l, 0, err
}

var errWaited = errors.New("the time to wait is over")

// stand waits for the place to become the first, and then for the lock.
func (q *queue) stand(ctx context.Context, r lease.AcquireRequest, ln *line, place *list.Element) (l lease.Lease, asked time.Time, err error) {
	turn := place.Value.(chan struct{})
	select {
	case <-turn: // also if the time is over: everybody asks once at least, if nobody is before
	default:
		select {
		case <-turn:
		case <-ctx.Done():
			return l, asked, q.gaveUp(ctx, r.Name, ln)
		case <-q.closing:
			return l, asked, q.gaveUp(ctx, r.Name, ln)
		}
	}
	for {
		if err := q.await(ctx, r.Name, ln); err != nil {
			return l, asked, err
		}
		if gone(ctx) {
			return l, asked, context.Cause(ctx)
		}
		asked = time.Now()
		l, err := q.try(ctx, r)
		if held, ok := errors.AsType[*lease.HeldError](err); ok {
			q.believe(ln, held.Remaining, held.Holder)
		} else if busy, ok := errors.AsType[*lease.BusyError](err); ok {
			q.expect(ln, time.Now().Add(max(busy.Retry, shortest)))
		} else {
			return l, asked, err
		}
	}
}

// shortest keeps the first waiter from asking without a pause.
const shortest = time.Millisecond

// await blocks until the first of the line should ask the store.
func (q *queue) await(ctx context.Context, name string, ln *line) error {
	for {
		q.mu.Lock()
		remaining := time.Until(ln.due)
		q.mu.Unlock()
		if remaining <= 0 {
			return nil
		}
		sleep := remaining
		if q.poll > 0 {
			sleep = min(sleep, jitter(q.poll))
		}
		timer := time.NewTimer(sleep)
		select {
		case <-timer.C:
			if sleep < remaining && q.keptFor(ctx, name, ln) == 0 {
				return nil
			}
		case <-ln.wake:
			q.expect(ln, time.Time{})
		case <-ctx.Done():
			timer.Stop()
			return q.gaveUp(ctx, name, ln)
		case <-q.closing:
			timer.Stop()
			return q.gaveUp(ctx, name, ln)
		}
		timer.Stop()
	}
}

// keptFor looks how long the lock cannot be granted, without a change of the store.
func (q *queue) keptFor(ctx context.Context, name string, ln *line) time.Duration {
	record, err := q.meter.get(ctx, name)
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

// try asks the store. A lease that nobody waits for any more is given back, unless
// the client can ask for it again by its idempotency key.
func (q *queue) try(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	l, err := q.meter.acquire(ctx, r)
	if err == nil && r.IdempotencyKey == "" && gone(ctx) {
		_ = q.meter.release(ctx, l.Claim) // else it expires
		q.released(r.Name)
		return lease.Lease{}, context.Cause(ctx)
	}
	return l, err
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
func (q *queue) join(name string) (*line, *list.Element) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == q.max {
		return nil, nil
	}
	q.waiting++
	ln := q.lines[name]
	if ln == nil {
		ln = &line{wake: make(chan struct{}, 1)}
		q.lines[name] = ln
	}
	turn := make(chan struct{})
	place := ln.waiters.PushBack(turn)
	if ln.waiters.Front() == place {
		close(turn)
	}
	return ln, place
}

// leave takes a request out of the line. If it was the first and got no lease, and
// it is not known for how long the lock is kept, the next one asks.
func (q *queue) leave(r lease.AcquireRequest, ln *line, place *list.Element, l lease.Lease, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting--
	first := ln.waiters.Front() == place
	ln.waiters.Remove(place)
	if err == nil {
		ln.grant(r, l)
	}
	switch next := ln.waiters.Front(); {
	case next == nil:
		delete(q.lines, r.Name)
	case first:
		close(next.Value.(chan struct{}))
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

// released wakes the first of the line.
func (q *queue) released(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln := q.lines[name]; ln != nil {
		select {
		case ln.wake <- struct{}{}:
		default: // it is on its way
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

// gaveUp is the error for a request that got nothing.
func (q *queue) gaveUp(ctx context.Context, name string, ln *line) error {
	select {
	case <-q.closing:
		return &lease.BusyError{Retry: jitter(time.Second), Cause: errClosing}
	default:
	}
	if gone(ctx) {
		return context.Cause(ctx)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	remaining := max(time.Until(ln.due), shortest)
	return &lease.HeldError{Name: name, Holder: ln.holder, Remaining: remaining, Retry: min(jitter(remaining), jitter(time.Second))}
}
