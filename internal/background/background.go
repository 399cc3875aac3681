// Package background runs functions in goroutines that have an owner, which ends them.
package background

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
)

// Run runs f in a goroutine. stop ends the context of f, and blocks until f has returned.
func Run(ctx context.Context, f func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// Read calls f with each event from this call on, until stop is called. stop blocks until f
// has received the events from before that call.
func Read[E any](events func(context.Context) iter.Seq[E], f func(E)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	all := events(ctx)
	wait := Run(ctx, func(context.Context) {
		for e := range all {
			f(e)
		}
	})
	return func() {
		cancel()
		wait()
	}
}

// WhileAny returns a child of ctx that ends when the contexts of all callers have ended. It is for work that several
// callers share. The CancelFunc also ends it, and must be called.
func WhileAny(ctx context.Context, callers []context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	var left atomic.Int64
	left.Store(int64(len(callers)))
	stops := make([]func() bool, 0, len(callers))
	for _, caller := range callers {
		stops = append(stops, context.AfterFunc(caller, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		}))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}
