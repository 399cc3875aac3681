package leaseserver

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
	"github.com/pglatch/pglatch/lease/internal/wire"
	"github.com/pglatch/pglatch/lease/shared"
)

// A queue makes requests wait for locks, first come, first served. For each lock, only the first
// waiter queries the store. It does so when a release through this server wakes it, and when the
// current lease must have expired. It also queries the store once per poll interval, to detect
// changes by other programs. Before a poll, it checks whether an acquire can succeed.
type queue struct {
	meter   *meter
	watches *watches
	max     int
	poll    time.Duration // negative = never
	closing chan struct{} // closed at shutdown

	mu       sync.Mutex
	waiting  int // requests, for locks
	watching int // requests, for changes
	locks    map[string]*lockQueue
}

// A lockQueue holds the requests that wait for one lock. It exists as long as there are any.
type lockQueue struct {
	waiters list.List     // of *waiter
	wake    chan struct{} // of size one: the first should ask now

	// The known state of the lock, guarded by queue.mu.
	due       boottime.Moment // it can be granted; the zero Moment = ask
	holder    string          // "" = not known
	key       string          // the idempotency key of the holder; "" = not known
	id        string          // the lease that is current; "" = not known
	ours      bool            // this server granted it
	wanted    boottime.Moment // when other servers were told that a request waits; zero = they were not
	back      boottime.Moment // until then the waiters leave the lock to those of other servers
	began     boottime.Moment // when the waiters began to pass the lock to each other, on a server that hears no others; zero = they have not
	passed    boottime.Moment // when a holder last handed the lock over
	confirmed boottime.Moment // time of the last query that confirmed that the lock is kept; zero = asked since, or it may be free

	copies map[identity][]*waiter // waiters that have an idempotency key, guarded by queue.mu
}

var errClosing = errors.New("the server shuts down")

func newQueue(c *Config, m *meter) *queue {
	q := &queue{meter: m, max: c.MaxWaiters, poll: c.PollInterval, closing: make(chan struct{}), locks: make(map[string]*lockQueue)}
	q.watches = &watches{queue: q}
	if m != nil {
		m.watches = q.watches
	}
	return q
}

// acquire asks for a lease, and waits for it for up to wait. The duration is the time between the
// call and the store operation that got the lease.
func (q *queue) acquire(ctx context.Context, r lease.AcquireRequest, wait time.Duration) (lease.Lease, time.Duration, error) {
	start := boottime.Present()
	if wait <= 0 {
		l, err := q.try(ctx, r)
		if err == nil {
			q.granted(r, outcome{lease: l, asked: start})
		}
		return l, 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errWaited)
	defer cancel()
	lq, w := q.join(ctx, r)
	if w == nil {
		return lease.Lease{}, 0, errTooMany()
	}
	o := q.stand(lq, w)
	if errors.Is(o.err, errNotSaid) || errors.Is(o.err, lease.ErrHeld) && q.mayHold(r) { // or an earlier sending of it has got the lease
		o = q.ask(lq, w)
	}
	o = q.leave(lq, w, o)
	q.takeAhead(w).cancel()
	return o.since(start)
}

// errAwaited is the cause of the error for an acquire in a batch of a lock that others wait for.
var errAwaited = errors.New("others wait for the lock")

// giveWay refuses an acquire that would overtake waiters for the lock: nothing is done.
func (q *queue) giveWay(name string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.locks[name] == nil {
		return nil
	}
	return &lease.BusyError{Retry: pause.AtMost(wire.DefaultRetry), Cause: errAwaited}
}

// ask asks the store, and records its answer about the lock.
func (q *queue) ask(lq *lockQueue, w *waiter) outcome {
	o := outcome{asked: boottime.Present()}
	o.lease, o.err = q.try(w.ctx, w.request)
	q.note(lq, w, o)
	return o
}

func errTooMany() error {
	return &lease.BusyError{Retry: pause.AtMost(time.Second), Cause: errors.New("too many requests wait")}
}

var errWaited = errors.New("the time to wait is over")

// stand waits until the request is the first, and then for the lock.
func (q *queue) stand(lq *lockQueue, w *waiter) outcome {
	if o := q.awaitTurn(lq, w); o != nil {
		return *o
	}
	q.prepare(lq, w)
	for {
		o, err := q.await(lq, w)
		if err != nil {
			return outcome{err: err}
		}
		if o == nil {
			o = new(q.ask(lq, w))
		} else {
			q.note(lq, w, *o)
		}
		if !errors.Is(o.err, lease.ErrHeld) && !errors.Is(o.err, lease.ErrBusy) {
			return *o
		}
		q.want(lq, w)
		q.mu.Lock()
		w.own = false
		q.mu.Unlock()
	}
}

// awaitTurn blocks until a request is the first waiter, and then returns nil, or until the
// request has another outcome.
func (q *queue) awaitTurn(lq *lockQueue, w *waiter) *outcome {
	select {
	case <-w.turn: // even if the time is over: each request asks at least once, if none is before it
		return nil
	default:
	}
	for {
		var err error
		select {
		case <-w.turn:
			return nil
		case <-w.news:
			if o := q.takeNews(lq, w); o != nil {
				return o
			}
		case <-w.ctx.Done():
			err = q.giveUp(lq, w)
		case <-q.closing:
			err = q.giveUp(lq, w)
		}
		if err != nil {
			return &outcome{err: err}
		}
	}
}

// shortest is the shortest pause between two queries of the first waiter.
const shortest = time.Millisecond

// await blocks until the first waiter gets the outcome of a hand-over, or should ask the store
// itself. In the second case it returns neither an outcome nor an error.
func (q *queue) await(lq *lockQueue, w *waiter) (*outcome, error) {
	for {
		q.mu.Lock()
		remaining := max(lq.due.Until(), lq.back.Until())
		w.own = !w.handed && (remaining <= 0 || w.got != nil)
		handed, own, got := w.handed, w.own, w.got
		if own && got == nil {
			lq.confirmed = boottime.Moment{}
		}
		q.mu.Unlock()
		switch {
		case handed:
			return q.listen(w, <-w.handOver), nil
		case got != nil:
			return got, nil
		case own && gone(w.ctx):
			return nil, context.Cause(w.ctx)
		case own:
			return nil, nil
		}
		sleep := remaining
		if q.poll > 0 {
			sleep = min(sleep, pause.Jitter(q.poll, 0.5))
		}
		timer := time.NewTimer(sleep)
		var err error
		select {
		case o := <-w.handOver:
			timer.Stop()
			return q.listen(w, o), nil
		case <-w.news:
			q.expectIfLooking(lq, w)
		case <-lq.wake:
			q.expect(lq, boottime.Moment{})
		case <-timer.C:
			if sleep < remaining && q.keptFor(w, lq) == 0 {
				q.expect(lq, boottime.Moment{})
			} else {
				q.want(lq, w)
			}
		case <-w.ctx.Done():
			err = q.giveUp(lq, w)
		case <-q.closing:
			err = q.giveUp(lq, w)
		}
		timer.Stop()
		if err != nil {
			return nil, err
		}
	}
}

// want tells other servers that a request waits, if clients of another server have the lock. It does so
// at most twice in a poll interval, and not for a request that has just come.
func (q *queue) want(lq *lockQueue, w *waiter) {
	if q.poll <= 0 {
		return
	}
	q.mu.Lock()
	now := boottime.Present()
	wants := !lq.ours && now.Sub(w.joined) >= q.poll/2 && (lq.wanted == (boottime.Moment{}) || now.Sub(lq.wanted) >= q.poll/2)
	if wants {
		lq.wanted = now
	}
	q.mu.Unlock()
	if wants {
		q.meter.feed.want(w.request.Name)
	}
}

// try asks the store.
func (q *queue) try(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	l, err := q.meter.acquire(ctx, r)
	if err != nil {
		return l, err
	}
	return q.take(ctx, r, l)
}

// take returns a granted lease. If no request waits for it any more, it is given back, unless the
// client can ask for it again by its idempotency key.
func (q *queue) take(ctx context.Context, r lease.AcquireRequest, l lease.Lease) (lease.Lease, error) {
	if r.IdempotencyKey == "" && gone(ctx) {
		_ = q.release(ctx, l.Claim) // else it expires
		return lease.Lease{}, context.Cause(ctx)
	}
	return l, nil
}

// gone reports whether the client hung up. The end of the wait ends ctx too.
func gone(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), errWaited)
}

// length returns how many requests wait.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting + q.watching
}

// waiters returns how many requests wait for a lock. Those that wait for any slot count at its gate.
func (q *queue) waiters(name string) (n int) {
	names := []string{name}
	if lock, slot, ok := shared.ParseName(name); ok && slot == 0 {
		names = append(names, slotLine(lock))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range names {
		if lq := q.locks[name]; lq != nil {
			n += lq.waiters.Len()
		}
	}
	return n
}

// granted records a lease that was acquired beside the queue, if the lock has a queue.
func (q *queue) granted(r lease.AcquireRequest, o outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if lq := q.locks[r.Name]; lq != nil {
		lq.grant(r, o)
	}
}

func (lq *lockQueue) grant(r lease.AcquireRequest, o outcome) {
	lq.due, lq.confirmed = boottime.Present().Add(o.lease.Remaining+r.LockDelay), o.asked
	lq.holder, lq.key, lq.id, lq.ours = r.Holder, r.IdempotencyKey, o.lease.ID, true
	lq.giveCopies(r, o)
}

// giveUp returns the error of a request that got nothing; nil if it has to wait for the outcome of
// a hand-over.
func (q *queue) giveUp(lq *lockQueue, w *waiter) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.handed {
		return nil
	}
	w.own = true
	if w.got != nil {
		return errGot
	}
	select {
	case <-q.closing:
		return &lease.BusyError{Retry: pause.AtMost(time.Second), Cause: errClosing}
	default:
	}
	if gone(w.ctx) {
		return context.Cause(w.ctx)
	}
	remaining := lq.due.Until()
	if lq.confirmed.Mono.Before(w.joined.Mono) || remaining <= 0 {
		return errNotSaid
	}
	return &lease.HeldError{Name: w.request.Name, Holder: lq.holder, Remaining: remaining, Retry: rules.Retry(remaining)}
}
