package leased

import (
	"context"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// A sending is a request for the lease that is under way. It is in a goroutine of its own, so that the end
// of a caller's ctx does not interrupt it. An interrupted request can still be granted, after the request that
// looks for it.
type sending struct {
	answers chan answer
	cancel  context.CancelFunc
}

type answer struct {
	lease lease.Lease
	err   error
}

// acquire requests the lease, or continues an earlier request whose outcome is unknown. wait is for a
// WaitingStore. fresh means that the request was sent in this call. If ctx ends first, the request continues.
func (b *Backend) acquire(ctx context.Context, wait time.Duration) (l lease.Lease, fresh bool, err error) {
	if fresh = b.sending == nil; fresh {
		b.send(ctx, wait)
	}
	select {
	case a := <-b.sending.answers:
		return a.lease, fresh, b.take(a)
	case <-ctx.Done():
		return lease.Lease{}, fresh, fmt.Errorf("leader: acquiring the lease of %s: no answer yet: %w", b.config.Name, context.Cause(ctx))
	}
}

// send sends the request. The next call of settle waits for the goroutine.
func (b *Backend) send(ctx context.Context, wait time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.ttl+wait)
	request := b.lease.Request(lease.AcquireRequest{Name: b.config.Name, Holder: b.identity, TTL: wholeMilliseconds(b.ttl)})
	store, answers := b.store, make(chan answer, 1)
	b.sending = &sending{answers, cancel}
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
	b.sending.cancel()
	b.sending = nil
	b.lease.Answered(got.lease, got.err)
	if got.err != nil {
		return fmt.Errorf("leader: acquiring the lease of %s: %w", b.config.Name, got.err)
	}
	return nil
}

// drop ends the sending that is under way.
func (b *Backend) drop() {
	if b.sending != nil {
		b.sending.cancel()
		_ = b.take(<-b.sending.answers)
	}
}

// settle ensures that nothing is held or requested. On failure the outcome is as unknown as before, but
// nothing is under way.
func (b *Backend) settle(ctx context.Context) error {
	if b.sending != nil {
		half, cancel := firstHalf(ctx)
		_, _, _ = b.acquire(half, 0) // takes the answer, if it comes
		cancel()
		b.drop()
	}
	if b.lease.Unknown() {
		_, _, err := b.acquire(ctx, 0)
		b.drop()
		if b.lease.Unknown() {
			return err
		}
	}
	if err := b.lease.Release(ctx, b.store); err != nil && !lease.IsOver(err) {
		return fmt.Errorf("leader: releasing the lease of %s: %w", b.config.Name, err)
	}
	b.leads = false
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
