package leased

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// An asking is a request for the lease whose outcome is not known yet. It is sent in a goroutine of its own,
// so that the end of a caller's ctx does not interrupt it. An interrupted request can still be granted, after
// the request that looks for it.
type asking struct {
	request lease.AcquireRequest
	answers chan answer // answer to the sending under way; nil = none
	cancel  context.CancelFunc
	lost    bool // the answer to an earlier sending is lost
}

type answer struct {
	lease lease.Lease
	err   error
}

// acquire requests the lease, or continues an earlier request that is not settled: by its key a request gets
// the same lease again. wait is for a WaitingStore. fresh means that the request was sent in this call. If
// ctx ends first, the request continues.
func (b *Backend) acquire(ctx context.Context, wait time.Duration) (l lease.Lease, fresh bool, err error) {
	if b.asked == nil {
		b.asked = &asking{request: lease.AcquireRequest{
			Name: b.config.Name, Holder: b.identity, TTL: wholeMilliseconds(b.ttl), IdempotencyKey: rand.Text(),
		}}
	}
	if fresh = b.asked.answers == nil; fresh {
		b.send(ctx, wait)
	}
	select {
	case a := <-b.asked.answers:
		return a.lease, fresh, b.take(a)
	case <-ctx.Done():
		return lease.Lease{}, fresh, fmt.Errorf("leader: acquiring the lease of %s: no answer yet: %w", b.config.Name, context.Cause(ctx))
	}
}

// send sends the request. The next call of settle waits for the goroutine.
func (b *Backend) send(ctx context.Context, wait time.Duration) {
	a, store := b.asked, b.store
	ctx, a.cancel = context.WithTimeout(context.WithoutCancel(ctx), b.ttl+wait)
	request, answers := a.request, make(chan answer, 1)
	a.answers = answers
	go func() {
		var got answer
		if wait > 0 {
			got.lease, got.err = store.(WaitingStore).AcquireWait(ctx, request, wait)
		} else {
			got.lease, got.err = store.Acquire(ctx, request)
		}
		answers <- got
	}()
}

// take records an answer.
func (b *Backend) take(got answer) error {
	a := b.asked
	a.cancel()
	a.answers = nil
	switch {
	case got.err == nil:
		b.held, b.asked = &got.lease.Claim, nil
		return nil
	case errors.Is(got.err, lease.ErrHeld), !a.lost && lease.NothingDone(got.err):
		b.asked = nil
	default:
		a.lost = true
	}
	return fmt.Errorf("leader: acquiring the lease of %s: %w", b.config.Name, got.err)
}

// drop ends the sending that is under way.
func (b *Backend) drop() {
	if b.asked != nil && b.asked.answers != nil {
		b.asked.cancel()
		_ = b.take(<-b.asked.answers)
	}
}

// settle ensures that nothing is held or requested. On failure the outcome is as unknown as before, but
// nothing is under way.
func (b *Backend) settle(ctx context.Context) error {
	if b.asked != nil && b.asked.answers != nil {
		half, cancel := firstHalf(ctx)
		_, _, _ = b.acquire(half, 0) // takes the answer, if it comes
		cancel()
		b.drop()
	}
	if b.asked != nil {
		_, _, err := b.acquire(ctx, 0)
		b.drop()
		if b.asked != nil {
			return err
		}
	}
	if b.held == nil {
		return nil
	}
	if err := b.store.Release(ctx, *b.held); err != nil && !lease.IsOver(err) {
		return fmt.Errorf("leader: releasing the lease of %s: %w", b.config.Name, err)
	}
	b.held, b.leads = nil, false
	return nil
}

// firstHalf returns a context that ends halfway to the deadline of ctx.
func firstHalf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}
