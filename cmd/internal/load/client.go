package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
)

// The fractions of ordinary leases on which a client does more than write and release.
const (
	renewing = 0.2  // renews once
	forging  = 0.05 // tries to release with wrong claims
	doubling = 0.05 // releases a second time
)

// afterError is the pause after an error that says nothing about the lease.
const afterError = 100 * time.Millisecond

// A client takes one lease after the other.
type client struct {
	*Load
	name string
}

func (c *client) run(ctx context.Context) {
	for ctx.Err() == nil {
		lock := rand.IntN(c.config.Names)
		switch p := rand.Float64(); {
		case p < c.config.Expire:
			c.expire(ctx, lock)
		case p < c.config.Expire+c.config.Heartbeat:
			c.keep(ctx, lock)
		default:
			c.use(ctx, lock)
		}
	}
}

// use takes a lease, writes, and releases it.
func (c *client) use(ctx context.Context, lock int) {
	t := c.acquire(ctx, lock, c.name)
	if t == nil {
		return
	}
	l := &c.checker.locks[lock]
	c.write(l, t)
	_ = pause.For(ctx, c.config.Hold)
	if chance(forging) {
		c.forge(ctx, t)
	}
	if chance(renewing) && !c.renew(ctx, l, t) {
		return
	}
	c.write(l, t)
	c.release(ctx, l, t)
}

// keep holds a lease beyond its TTL, with heartbeats.
func (c *client) keep(ctx context.Context, lock int) {
	t := c.acquire(ctx, lock, c.name)
	if t == nil {
		return
	}
	l := &c.checker.locks[lock]
	for range 5 { // a third of the TTL each
		_ = pause.For(ctx, c.config.TTL/3)
		if !c.renew(ctx, l, t) {
			return
		}
		c.write(l, t)
	}
	c.release(ctx, l, t)
}

// expire lets a lease expire and a successor write. Then it does everything that the old client
// might do before it knows of the expiry.
func (c *client) expire(ctx context.Context, lock int) {
	old := c.acquire(ctx, lock, c.name)
	if old == nil {
		return
	}
	l := &c.checker.locks[lock]
	c.write(l, old)
	_ = pause.For(ctx, time.Until(old.granted.Add(old.lasts+old.lasts/marginPart)))
	if !c.over(ctx, old) {
		return
	}
	l.done(old)
	c.meter.count(&c.meter.counts.Expired)
	if chance(0.5) {
		c.stale(ctx, old) // possibly before there is a successor
	}
	next := c.acquire(ctx, lock, c.name+"-next")
	if next == nil {
		return
	}
	c.write(l, next)
	c.write(l, old)
	c.stale(ctx, old)
	if c.renew(ctx, l, next) { // the old client's attempts must not have affected it
		c.release(ctx, l, next)
	}
}

// overtime is how long a store may keep a lease beyond the time that it reported. etcd does so: it counts
// whole seconds, and ends leases some time after their end.
const overtime = 10 * time.Second

// over waits until the store reports the end of a lease whose time is over. Until then its holder may renew it.
func (c *client) over(ctx context.Context, old *heldLease) bool {
	for end := time.Now().Add(overtime); ctx.Err() == nil; {
		r, err := c.config.Locks.Get(ctx, old.Name)
		switch {
		case err != nil && !errors.Is(err, lease.ErrNotFound):
			c.failed(ctx, err)
		case err != nil || r.State != lease.Held || r.Token != old.Token:
			return true
		case time.Now().After(end):
			c.checker.report("expired", old, "kept for %v longer than it was granted for", overtime)
			return false
		}
		_ = pause.For(ctx, c.config.TTL/marginPart)
	}
	return false
}

// stale tries to renew and to release a lease that has expired.
func (c *client) stale(ctx context.Context, old *heldLease) {
	_, err := c.config.Locks.Renew(ctx, lease.RenewRequest{Claim: old.Claim, TTL: c.config.TTL})
	c.mustRefuse(ctx, "expired", old, "renewed though it had expired", &c.meter.counts.StaleRenewals, err)
	err = c.config.Locks.Release(ctx, old.Claim)
	c.mustRefuse(ctx, "release", old, "released though it had expired", &c.meter.counts.StaleReleases, err)
}

// forge tries to release a lease with wrong claims.
func (c *client) forge(ctx context.Context, t *heldLease) {
	for _, wrong := range []func(*lease.Claim){
		func(c *lease.Claim) { c.Holder += "-other" },
		func(c *lease.Claim) { c.ID += "-other" },
		func(c *lease.Claim) { c.Token++ },
	} {
		claim := t.Claim
		wrong(&claim)
		err := c.config.Locks.Release(ctx, claim)
		c.mustRefuse(ctx, "release", t, "released with a wrong claim", &c.meter.counts.StaleReleases, err)
	}
}

// mustRefuse checks the answer to a claim that is not current.
func (c *client) mustRefuse(ctx context.Context, invariant string, t *heldLease, what string, counted *int, err error) {
	switch {
	case err == nil:
		c.checker.report(invariant, t, "%s", what)
	case refusal(err):
		c.meter.count(counted)
	default:
		c.failed(ctx, err)
	}
}
