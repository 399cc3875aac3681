package leaseserver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
)

// A watches holds the locks that requests watch for changes. Changes by this server, and
// messages of other servers, wake the watchers of a lock. In addition, one of the watchers polls
// the store. However many watch, a change costs one read of the store.
type watches struct {
	queue *queue
	mu    sync.Mutex
	locks map[string]*watch
}

// A watch is one lock that requests watch. It exists as long as there are any.
type watch struct {
	turn chan struct{} // of size one: the goroutine that fills it reads the store

	// Guarded by watches.mu.
	watchers int
	changes  uint64        // known changes
	changed  chan struct{} // closed with the next change
	last     reading
}

// enter counts a request that watches; false if the limit is reached, which is that of waiters.
// Watchers have places of their own, so that read-only clients keep nobody from waiting for a lock.
func (q *queue) enter() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.watching >= q.max {
		return false
	}
	q.watching++
	return true
}

func (q *queue) exit() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.watching--
}

// A reading is the store's answer.
type reading struct {
	of     uint64 // the known changes before the store was asked
	at     boottime.Moment
	record lease.Record
	err    error
}

// version returns the version of a lock; 0 = the lock is unknown.
func (r reading) version() uint64 { return r.record.Version }

func (r reading) failed() bool { return r.err != nil && !errors.Is(r.err, lease.ErrNotFound) }

// after returns the record of a lock as soon as its version differs from index, and in any case
// after wait.
func (w *watches) after(ctx context.Context, name string, index uint64, wait time.Duration) (lease.Record, error) {
	if !w.queue.enter() {
		return lease.Record{}, errTooMany()
	}
	defer w.queue.exit()
	lock := w.join(name)
	defer w.leave(name, lock)
	end := time.NewTimer(wait)
	defer end.Stop()
	for over := false; ; {
		w.mu.Lock()
		known, changed := lock.changes, lock.changed
		w.mu.Unlock()
		r, err := w.read(ctx, name, lock, known)
		if err != nil {
			return lease.Record{}, err
		}
		if over || r.failed() || r.version() != index {
			return r.record, r.err
		}
		over, err = w.await(ctx, lock, changed, end.C)
		if err != nil {
			return lease.Record{}, err
		}
	}
}

// await blocks until a watch should be read again; over = for the last time.
func (w *watches) await(ctx context.Context, lock *watch, changed <-chan struct{}, end <-chan time.Time) (over bool, err error) {
	var poll <-chan time.Time
	if w.queue.poll > 0 {
		timer := time.NewTimer(pause.Jitter(w.queue.poll, 0.5))
		defer timer.Stop()
		poll = timer.C
	}
	select {
	case <-changed:
	case <-poll:
		w.mu.Lock()
		defer w.mu.Unlock()
		if -lock.last.at.Until() >= w.queue.poll/2 { // no other watcher has polled
			lock.changes++
		}
	case <-end:
		w.mu.Lock()
		defer w.mu.Unlock()
		lock.changes++ // the answer must be current
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-w.queue.closing:
		return false, &lease.BusyError{Retry: pause.AtMost(time.Second), Cause: errClosing}
	}
	return false, nil
}

// read returns the store's answer after the known changes. One watcher asks for all.
func (w *watches) read(ctx context.Context, name string, lock *watch, known uint64) (reading, error) {
	select {
	case lock.turn <- struct{}{}:
		defer func() { <-lock.turn }()
	case <-ctx.Done():
		return reading{}, context.Cause(ctx)
	}
	w.mu.Lock()
	last, next := lock.last, reading{of: lock.changes, at: boottime.Present()}
	w.mu.Unlock()
	if last.of >= known {
		return last, nil
	}
	next.record, next.err = w.queue.meter.get(ctx, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if lock.last = next; last.of > 0 && next.version() != last.version() {
		close(lock.changed) // wakes watchers that have not received it
		lock.changed = make(chan struct{})
	}
	return next, nil
}

func (w *watches) join(name string) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	lock := w.locks[name]
	if lock == nil {
		if w.locks == nil {
			w.locks = make(map[string]*watch)
		}
		lock = &watch{turn: make(chan struct{}, 1), changed: make(chan struct{})}
		w.locks[name] = lock
	}
	lock.watchers++
	lock.changes++ // earlier readings are outdated
	return lock
}

func (w *watches) leave(name string, lock *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lock.watchers--; lock.watchers == 0 {
		delete(w.locks, name)
	}
}

// change wakes the watchers of a lock that may have changed.
func (w *watches) change(name string) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if lock := w.locks[name]; lock != nil {
		lock.wake()
	}
}

// changeAll wakes all watchers.
func (w *watches) changeAll() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, lock := range w.locks {
		lock.wake()
	}
}

func (w *watch) wake() {
	w.changes++
	close(w.changed)
	w.changed = make(chan struct{})
}
