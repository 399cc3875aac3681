package leaseserver

import (
	"errors"
	"slices"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/lease"
)

// An identity distinguishes the sendings of one request for a lock from other requests. Only
// requests with an idempotency key have one.
type identity struct{ holder, key string }

func identityOf(r lease.AcquireRequest) identity { return identity{r.Holder, r.IdempotencyKey} }

// errGot makes a request leave the queue with the lease that another sending of it got.
var errGot = errors.New("another sending got the lease")

// enter registers a waiting request, so that it learns the result of its other sendings, or asks
// the store for it.
func (lq *lockQueue) enter(w *waiter) {
	if w.request.IdempotencyKey == "" {
		return
	}
	if lq.copies == nil {
		lq.copies = make(map[identity][]*waiter)
	}
	id := identityOf(w.request)
	lq.copies[id] = append(lq.copies[id], w)
	if lq.mayBeOf(w.request) {
		w.look = true
		w.poke()
	}
}

// quit unregisters a request.
func (lq *lockQueue) quit(w *waiter) {
	if w.request.IdempotencyKey == "" {
		return
	}
	id := identityOf(w.request)
	rest := slices.DeleteFunc(lq.copies[id], func(c *waiter) bool { return c == w })
	if lq.copies[id] = rest; len(rest) == 0 {
		delete(lq.copies, id)
	}
}

// bequeath is for a request that leaves the queue. If it is the first sending, the next sending
// moves to its place. So all sendings wait together at the place of the earliest.
func (lq *lockQueue) bequeath(w *waiter) {
	if w.request.IdempotencyKey == "" {
		return
	}
	if all := lq.copies[identityOf(w.request)]; len(all) > 1 && all[0] == w {
		lq.waiters.MoveBefore(all[1].place, w.place)
	}
}

// giveCopies gives a lease to the other sendings of the request that got it. Otherwise they would
// wait for their own lease, and then get one that nobody uses.
func (lq *lockQueue) giveCopies(r lease.AcquireRequest, o outcome) {
	if r.IdempotencyKey == "" {
		return
	}
	for _, w := range lq.copies[identityOf(r)] {
		if o.ahead && w.joined.Sub(o.asked) > 0 { // only the store can tell for how long it has the lease
			w.look = true
			w.poke()
			continue
		}
		w.got = &outcome{lease: o.lease, asked: o.asked}
		w.own = !w.handed
		w.poke()
	}
}

// mostLooks bounds the requests that ask about one lease. The holder's name does not say which of
// its requests got the lease.
const mostLooks = 16

// findCopies makes requests of the holder ask for the lease, because another server may have
// granted it to another sending of one of them. It reports whether first, which asks anyway, is one
// of them.
func (lq *lockQueue) findCopies(first *waiter) (asks bool) {
	looks := 0
	for e := lq.waiters.Front(); e != nil && looks < mostLooks; e = e.Next() {
		w := e.Value.(*waiter)
		switch {
		case w.request.IdempotencyKey == "" || w.request.Holder != lq.holder:
			continue
		case w == first:
			asks = true
		default:
			w.look = true
			w.poke()
		}
		looks++
	}
	return asks
}

func (w *waiter) poke() {
	select {
	case w.news <- struct{}{}:
	default: // it will look anyway
	}
}

// takeNews handles news of a request that is not the first; nil = no outcome.
func (q *queue) takeNews(lq *lockQueue, w *waiter) *outcome {
	q.mu.Lock()
	look := w.look && !w.handed && w.got == nil
	w.look, w.own = false, w.own || look // no hand-over to it meanwhile
	got := w.got
	if w.handed {
		got = nil // the hand-over's outcome comes
	}
	q.mu.Unlock()
	if !look {
		return got
	}
	if o := q.ask(lq, w); o.err == nil {
		return &o
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	w.own = w.got != nil
	return w.got
}

// expectIfLooking makes the first request ask, if it should.
func (q *queue) expectIfLooking(lq *lockQueue, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.look {
		w.look, lq.due = false, boottime.Moment{}
	}
}
