// Package shared lets many viewers share one read.
package shared

import (
	"context"
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
