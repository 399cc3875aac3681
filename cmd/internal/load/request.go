package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
)

// acquire takes a lease, or returns nil if ctx ended first.
func (c *client) acquire(ctx context.Context, lock int, holder string) *heldLease {
	l := &c.checker.locks[lock]
	began := time.Now()
	for ctx.Err() == nil {
		floor, asked := l.floor(), time.Now()
		got, until, err := c.config.Locks.Acquire(ctx, lease.AcquireRequest{Name: fmt.Sprintf("%s-%d", c.prefix, lock), Holder: holder, TTL: c.config.TTL})
		held, refused := errors.AsType[*lease.HeldError](err)
		switch {
		case err == nil:
			c.meter.took(Acquire, time.Since(began))
			return l.granted(got, asked, until, floor)
		case refused:
			c.meter.count(&c.meter.counts.Held)
			_ = pause.For(ctx, held.Retry)
		default:
			c.failed(ctx, err)
		}
	}
	return nil
}

// renew reports whether the lease continues.
func (c *client) renew(ctx context.Context, l *lockChecker, t *heldLease) bool {
	for ctx.Err() == nil {
		asked := time.Now()
		got, err := c.config.Locks.Renew(ctx, lease.RenewRequest{Claim: t.Claim, TTL: c.config.TTL})
		switch {
		case err == nil:
			c.meter.took(Renew, time.Since(asked))
			l.renewed(t, asked, got.Remaining)
			return true
		case refusal(err):
			l.refused(t, err)
			l.done(t)
			c.meter.count(&c.meter.counts.Expired)
			return false
		}
		c.failed(ctx, err)
	}
	return false
}

func (c *client) release(ctx context.Context, l *lockChecker, t *heldLease) {
	l.mu.Lock()
	until := t.until
	l.mu.Unlock()
	l.done(t)
	asked := time.Now()
	err := c.config.Locks.Release(context.WithoutCancel(ctx), t.Claim)
	switch {
	case err == nil:
		c.meter.took(Release, time.Since(asked))
	case refusal(err):
		if time.Now().Before(until) {
			c.checker.report("lost", t, "the store refuses the release: %v", err)
		}
		c.meter.count(&c.meter.counts.Expired)
		return
	default:
		c.failed(ctx, err)
		return
	}
	if chance(doubling) { // no error unless another client has the lock now, and its lease must not end
		if err := c.config.Locks.Release(ctx, t.Claim); err != nil && !refusal(err) {
			c.failed(ctx, err)
		}
	}
}

// write writes to the resource behind the lock.
func (c *client) write(l *lockChecker, t *heldLease) {
	if l.write(t) {
		c.meter.count(&c.meter.counts.Writes)
	} else {
		c.meter.count(&c.meter.counts.StaleWrites)
	}
}

// failed counts an error that says nothing about the lease, and waits.
func (c *client) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	wait := afterError
	if busy, ok := errors.AsType[*lease.BusyError](err); ok {
		c.meter.count(&c.meter.counts.Busy)
		wait = busy.Retry
	} else {
		c.meter.count(&c.meter.counts.Failed)
		c.meter.last(err)
	}
	_ = pause.For(ctx, wait)
}

// refusal reports whether the store refused a claim because it is not current.
func refusal(err error) bool {
	return errors.Is(err, lease.ErrStale) || errors.Is(err, lease.ErrExpired) || errors.Is(err, lease.ErrNotFound)
}

func chance(p float64) bool { return rand.Float64() < p }
