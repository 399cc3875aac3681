// Package shared lets many viewers share one read.
package shared

import (
	"context"
	"sync"
	"time"
)

// A Read is a read that viewers wait for. Its results stand beside it: they are written before End, and do not change
// after.
type Read struct {
	done  chan struct{}
	ended time.Time
}

// Begin returns a Read that has begun.
func Begin() Read { return Read{done: make(chan struct{})} }

// End ends the wait of all viewers.
func (r *Read) End() {
	r.ended = time.Now()
	close(r.done)
}

// Ended returns when the read ended. Call it after Wait.
func (r *Read) Ended() time.Time { return r.ended }

// Fresh reports whether a viewer may use this read instead of a new one: it runs, or ended less than every ago.
func (r *Read) Fresh(every time.Duration) bool {
	select {
	case <-r.done:
		return time.Since(r.ended) < every
	default:
		return true
	}
}

// Wait blocks until the read ends. If ctx ends first, it returns the cause, and the read continues.
func (r *Read) Wait(ctx context.Context) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A Reader reads for any number of viewers at once.
type Reader[T any] struct {
	Every time.Duration // a result is used for this long
	Do    func() T      // reads, within bounds of its own

	mu   sync.Mutex
	last *reading[T] // nil = none yet
}

// A reading is a Read with its result.
type reading[T any] struct {
	Read

	result T
}

// Look returns the newest result. If ctx ends first, it returns the cause, and the read continues for other viewers.
func (r *Reader[T]) Look(ctx context.Context) (result T, err error) {
	f := r.join()
	if err := f.Wait(ctx); err != nil {
		return result, err
	}
	return f.result, nil
}

// join returns the read to wait for, and starts one if the last result is too old.
func (r *Reader[T]) join() *reading[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil || !r.last.Fresh(r.Every) {
		r.last = &reading[T]{Read: Begin()}
		go r.run(r.last)
	}
	return r.last
}

func (r *Reader[T]) run(f *reading[T]) {
	defer f.End()
	f.result = r.Do()
}
