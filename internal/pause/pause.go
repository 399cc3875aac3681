// Package pause waits for a duration that a context can cut short, and chooses durations at random,
// so that processes do not act in step.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d, or until ctx ends. If ctx has ended by then, it returns the cause of ctx,
// otherwise nil.
func For(ctx context.Context, d time.Duration) error {
	if d > 0 && ctx.Err() == nil {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

// Jitter returns d, made shorter or longer by a random fraction of d, which is at most part.
func Jitter(d time.Duration, part float64) time.Duration {
	return time.Duration(float64(d) * (1 + part*(2*rand.Float64()-1)))
}

// AtMost returns a random duration between half of d and d.
func AtMost(d time.Duration) time.Duration {
	half := d / 2
	return half + rand.N(max(d-half, 1))
}

// Backoff returns the pause after some failures in a row. It is AtMost of a duration that is
// first without a failure, doubles with each failure, and does not exceed longest.
func Backoff(failures int, first, longest time.Duration) time.Duration {
	d := first
	for ; failures > 0 && d < longest; failures-- {
		d *= 2
	}
	return AtMost(min(d, longest))
}
