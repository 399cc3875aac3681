package sqlite

import (
	"context"
	"sync"

	"github.com/pglatch/pglatch/lease"
)

// maxWaiting bounds the waiting requests, maxBatch those of one transaction.
const (
	maxWaiting = 1 << 16
	maxBatch   = 1 << 10
)

// A request is decided inside a transaction, on the writer's goroutine, and answered after its
// commit.
type request struct {
	ctx    context.Context
	decide func(*txn) error
	err    error
	done   chan struct{} // closed when err and decide's results can be read
}

func (r *request) answer(err error) {
	r.err = err
	close(r.done)
}

// A queue holds the requests until the writer takes them.
type queue struct {
	ready chan struct{} // has a value if the writer should check

	mu      sync.Mutex
	waiting []*request
	closed  bool
}

func newQueue() *queue { return &queue{ready: make(chan struct{}, 1)} }

// add accepts r, or returns why not. Each accepted request is answered.
func (q *queue) add(r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	if len(q.waiting) >= maxWaiting {
		return &lease.BusyError{Retry: retryBusy, Cause: errCrowded}
	}
	q.waiting = append(q.waiting, r)
	q.wake()
	return nil
}

func (q *queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take waits for requests and removes up to maxBatch of them, the oldest first. It returns none
// when the queue is closed and empty.
func (q *queue) take() []*request {
	for range q.ready {
		q.mu.Lock()
		n := min(len(q.waiting), maxBatch)
		batch := q.waiting[:n:n]
		if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
			q.waiting = nil // releases the memory of those that were taken
		}
		last := q.closed && len(q.waiting) == 0
		if len(q.waiting) > 0 || q.closed {
			q.wake()
		}
		q.mu.Unlock()
		if n > 0 || last {
			return batch
		}
	}
	return nil
}

// close refuses further requests.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake()
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

func (q *queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}
