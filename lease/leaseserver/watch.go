package leaseserver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// Watches are the locks that requests wait to see changed. Whatever this server does to a
// lock, and what other servers say of it, wakes those who watch it; for the rest one of
// them looks after an interval. However many watch, the store is asked once for a change.
type watches struct {
	queue *queue
	mu    sync.Mutex
	locks map[string]*watch
}

// A watch is one lock that requests wait for. It exists as long as there are any.
type watch struct {
	turn chan struct{} // of size one: who has put something in reads the store

	// Guarded by watches.mu.
	watchers int
	changes  uint64        // that are known of
	changed  chan struct{} // closed with the next one
	last     reading
}

// enter counts a request that watches; false if as many do as may wait for locks. They have
// places of their own: who may only read keeps nobody from waiting for a lock.
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

// A reading is what the store said.
type reading struct {
	of     uint64 // the changes that were known of before it was asked
	at     boottime.Moment
	record lease.Record
	err    error
}

// version is that of a lock; 0 = nothing is known of it.
func (r reading) version() uint64 { return r.record.Version }

func (r reading) failed() bool { return r.err != nil && !errors.Is(r.err, lease.ErrNotFound) }

// after returns what is known of a lock as soon as its version is another than index, and in
// any case after wait.
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
		timer := time.NewTimer(wire.Jitter(w.queue.poll))
		defer timer.Stop()
		poll = timer.C
	}
	select {
	case <-changed:
	case <-poll:
		w.mu.Lock()
		defer w.mu.Unlock()
		if -lock.last.at.Until() >= w.queue.poll/2 { // nobody else has looked
			lock.changes++
		}
	case <-end:
		w.mu.Lock()
		defer w.mu.Unlock()
		lock.changes++ // what is answered is of now
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-w.queue.closing:
		return false, &lease.BusyError{Retry: wire.Jitter(time.Second), Cause: errClosing}
	}
	return false, nil
}

// read returns what the store said after so many changes: one who watches asks for all.
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
		close(lock.changed) // others wait that have not heard of it
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
	lock.changes++ // what was read before is old
	return lock
}

func (w *watches) leave(name string, lock *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lock.watchers--; lock.watchers == 0 {
		delete(w.locks, name)
	}
}

// change wakes those who watch a lock, which can have changed.
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

// changeAll wakes all.
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
