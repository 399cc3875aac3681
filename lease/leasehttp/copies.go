package leasehttp

import (
	"errors"
	"slices"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/lease"
)

// An identity tells sendings of one request for a lock from other requests. Only
// requests with an idempotency key have one.
type identity struct{ holder, key string }

func identityOf(r lease.AcquireRequest) identity { return identity{r.Holder, r.IdempotencyKey} }

// errGot leaves the line with what another sending of the request got.
var errGot = errors.New("another sending got the lease")

// enter notes a request that waits, so that it hears what another sending of it gets,
// or asks what it has got.
func (ln *line) enter(w *waiter) {
	if w.request.IdempotencyKey == "" {
		return
	}
	if ln.copies == nil {
		ln.copies = make(map[identity][]*waiter)
	}
	id := identityOf(w.request)
	ln.copies[id] = append(ln.copies[id], w)
	if ln.mayBeOf(w.request) {
		w.look = true
		w.poke()
	}
}

// quit forgets a request.
func (ln *line) quit(w *waiter) {
	if w.request.IdempotencyKey == "" {
		return
	}
	id := identityOf(w.request)
	rest := slices.DeleteFunc(ln.copies[id], func(c *waiter) bool { return c == w })
	if ln.copies[id] = rest; len(rest) == 0 {
		delete(ln.copies, id)
	}
}

// tellCopies gives a lease to the other sendings of the request that got it. They would
// wait for themselves, and get a lease that nobody uses.
func (ln *line) tellCopies(r lease.AcquireRequest, o outcome) {
	if r.IdempotencyKey == "" {
		return
	}
	for _, w := range ln.copies[identityOf(r)] {
		w.got = &outcome{lease: o.lease, asked: o.asked}
		w.own = !w.handed
		w.poke()
	}
}

// mostLooks bounds the requests that ask about one lease: its holder's name does not
// say whose request got it.
const mostLooks = 16

// findCopies lets requests of the holder ask for the lease, which another server may
// have granted to another sending of one of them. It reports whether first, which asks
// anyway, is one of them.
func (ln *line) findCopies(first *waiter) (asks bool) {
	looks := 0
	for e := ln.waiters.Front(); e != nil && looks < mostLooks; e = e.Next() {
		w := e.Value.(*waiter)
		switch {
		case w.request.IdempotencyKey == "" || w.request.Holder != ln.holder:
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
	default: // it will look
	}
}

// heed is what a request that is not the first does with news; nil = nothing came of it.
func (q *queue) heed(ln *line, w *waiter) *outcome {
	q.mu.Lock()
	look := w.look && !w.handed && w.got == nil
	w.look, w.own = false, w.own || look // nothing is handed to it meanwhile
	got := w.got
	if w.handed {
		got = nil // it will be told
	}
	q.mu.Unlock()
	if !look {
		return got
	}
	if o := q.ask(ln, w); o.err == nil {
		return &o
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	w.own = w.got != nil
	return w.got
}

// expectIfLooking lets the first ask, if it should.
func (q *queue) expectIfLooking(ln *line, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.look {
		w.look, ln.due = false, boottime.Moment{}
	}
}
