// Package background runs functions that an owner ends.
package background

import (
	"context"
	"iter"
	"sync"
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

// Read calls f with each of the events from this call on, until stop. stop blocks until f has
// received those from before it.
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
