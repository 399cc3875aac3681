package leased

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
)

// Wait waits in the queue of a WaitingStore, and returns nil when it has got the lease. On other stores it
// checks every PollInterval, and returns nil when nobody has the lease. Before the first attempt it returns
// nil at once.
//
// When ctx ends, it returns ctx's cause. On a WaitingStore it does so only when the pending request is
// answered. That takes a PollInterval plus a second at most, or three seconds if the store cannot be
// reached.
func (b *Backend) Wait(ctx context.Context) error {
	switch _, waits := b.store.(WaitingStore); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case b.identity == "", b.lease.Held() != nil, b.lease.Unknown(): // the next attempt shows the outcome
		return nil
	case waits:
		return b.waitInLine(ctx)
	}
	return b.look(ctx)
}

// longestWait limits how long a request waits in the queue, so that Wait ends soon.
const longestWait = time.Second

// waitInLine waits in the store's queue, a PollInterval at a time. It interrupts no request whose answer
// comes, because an interrupted request could be granted later.
func (b *Backend) waitInLine(ctx context.Context) error {
	for ctx.Err() == nil {
		patience := min(b.config.PollInterval, longestWait)
		if deadline, ok := ctx.Deadline(); ok {
			patience = min(patience, time.Until(deadline))
		}
		if patience < MinPollInterval { // not worth a request
			<-ctx.Done()
			break
		}
		asked := time.Now()
		_, _, err := b.acquire(ctx, patience)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, lease.ErrHeld):
			_ = pause.For(ctx, patience-time.Since(asked)) // for a store with a shorter maximum wait
			continue
		case ctx.Err() == nil:
			return err
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*patience+time.Second)
		_ = b.settle(last) // on failure the next attempt adopts the lease, Release ends it, or it expires
		cancel()
	}
	return context.Cause(ctx)
}

// look polls until nobody has the lease.
func (b *Backend) look(ctx context.Context) error {
	for {
		r, err := b.store.Get(ctx, b.config.Name)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, lease.ErrNotFound), err == nil && r.AvailableIn <= 0:
			return nil
		case err != nil:
			return fmt.Errorf("leader: waiting for the lease of %s: %w", b.config.Name, err)
		}
		_ = pause.For(ctx, min(r.AvailableIn, pause.Jitter(b.config.PollInterval, 0.25)))
	}
}
