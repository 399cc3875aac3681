// Package pause waits for a time that a context may cut short.
package pause

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends. It returns the cause of ctx if that has ended by then,
// else nil.
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
