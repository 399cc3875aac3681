package demokit

import (
	"context"
	"errors"
	"time"
)

// Patience limits waits for quick events, with room for a slow and busy machine.
const Patience = 30 * time.Second

// Await polls until is reports true.
func Await(ctx context.Context, what string, is func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Patience, errors.New("waited too long for "+what))
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := is(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Pause waits for d or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
