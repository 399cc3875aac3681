// Package pause waits for a duration that a context can cut short.
package pause

import (
	"context"
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
