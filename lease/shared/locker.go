package shared

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
)

// Defaults of a Config.
const (
	DefaultGateTTL      = 5 * time.Second
	DefaultPollInterval = 250 * time.Millisecond
)

// A Config describes a Locker. Only Store is required.
type Config struct {
	// Store has the leases. All processes that share a lock must use the same leases, in the
	// same database or on the same lock server.
	Store lease.Store

	// GateTTL is how long other requests are kept out after a request died at the gate, or after an
	// exclusive request with an IdempotencyKey gave up. 0 = 5 s. If the store is slow, the time is
	// at least four times what the last list of a lock's leases took, up to 20 s. Otherwise no
	// request could pass the gate in time.
	GateTTL time.Duration

	// PollInterval is how often a waiting request polls. It also polls when a lease must have
	// expired. 0 = 250 ms.
	PollInterval time.Duration
}

// A Locker acquires shares of locks. It is safe for concurrent use.
type Locker struct {
	config Config
	line   line             // the store; nil = it has no queue
	notice notices          // the store; nil = it has no notices
	hander lease.HandOverer // the store; nil = it cannot
	took   atomic.Int64     // nanoseconds of the last look at a lock: how slow the store is
}

// A line is a store with a queue for each name, first come, first served.
type line interface {
	AcquireWait(ctx context.Context, r lease.AcquireRequest, wait time.Duration) (lease.Lease, error)
}

// A notices is a store that can notify waiters of the release of a share. Notifications can get
// lost.
type notices interface {
	// Watch begins to watch; await blocks until a release, or for d. Its error ends the request.
	// stop ends the watch.
	Watch(ctx context.Context, lock string) (await func(d time.Duration) error, stop func(), err error)
}

// New returns a Locker, or a *lease.InvalidError for a bad Config.
func New(c Config) (*Locker, error) {
	if c.Store == nil {
		return nil, &lease.InvalidError{Field: "Config.Store", Value: "nil", Remedy: "give the store of the leases"}
	}
	if c.GateTTL != 0 && (c.GateTTL < lease.MinTTL || c.GateTTL > lease.MaxTTL) {
		return nil, &lease.InvalidError{Field: "Config.GateTTL", Value: c.GateTTL.String(), Remedy: fmt.Sprintf("use %v to %v, or 0 for %v", lease.MinTTL, lease.MaxTTL, DefaultGateTTL)}
	}
	if c.PollInterval < 0 {
		return nil, &lease.InvalidError{Field: "Config.PollInterval", Value: c.PollInterval.String(), Remedy: fmt.Sprintf("use more than 0, or 0 for %v", DefaultPollInterval)}
	}
	c.GateTTL, c.PollInterval = cmp.Or(c.GateTTL, DefaultGateTTL), cmp.Or(c.PollInterval, DefaultPollInterval)
	l := &Locker{config: c}
	l.line, _ = c.Store.(line)
	l.notice, _ = c.Store.(notices)
	l.hander, _ = c.Store.(lease.HandOverer)
	return l, nil
}

// patience is how long a request that does not wait stays at a gate that other requests are only
// passing.
const patience = time.Second

// attempts is how often a request that does not wait tries again if its lease of the gate ended too
// early.
const attempts = 3

// Acquire requests a share, and waits for it for at most wait: 0 = no wait, negative = until
// ctx ends. It returns *lease.HeldError if it did not get one. After an error that package
// lease does not define, the outcome is unknown, as with a Store. If the request is sent again
// with its IdempotencyKey, it gets the share that the first request got.
func (l *Locker) Acquire(ctx context.Context, r Request, wait time.Duration) (Share, error) {
	if err := r.Validate(); err != nil {
		return Share{}, err
	}
	q := &request{Locker: l, Request: r, ctx: ctx, patient: wait != 0}
	q.Slots = cmp.Or(r.Slots, MaxSlots)
	if wait >= 0 {
		q.end = time.Now().Add(wait)
	}
	for attempt := 1; ; attempt++ {
		s, err := q.attempt()
		if !errors.Is(err, errGateLost) && !errors.Is(err, errSlotLost) {
			return s, err
		}
		if q.left() <= 0 && attempt >= attempts {
			return Share{}, q.unknown(err)
		}
		if err := pause.For(ctx, lease.MinTTL); err != nil {
			return Share{}, err
		}
	}
}

// unknown converts the error of a request that may have got a slot, so that it does not match an
// error that says that nothing was done.
func (q *request) unknown(err error) error {
	if lease.NothingDone(err) {
		err = errors.New(err.Error())
	}
	return fmt.Errorf("shared: acquire %s: outcome unknown: %w", q.Name, err)
}

// A request is a Request in progress.
type request struct {
	*Locker
	Request

	ctx     context.Context
	patient bool      // it waits
	end     time.Time // of the wait; zero = none
	got     *Share    // by an earlier sending, found during the wait at the gate
}

// left returns the rest of the time to wait.
func (q *request) left() time.Duration {
	if q.end.IsZero() {
		return lease.MaxTTL
	}
	return max(time.Until(q.end), 0)
}

// attempt gets the gate, and then the share. A refused request may have the share by an earlier
// sending.
func (q *request) attempt() (Share, error) {
	g, err := q.enter()
	if errors.Is(err, lease.ErrHeld) {
		q.got = q.earlier(q.ctx)
	}
	if q.got != nil {
		if err == nil {
			q.giveBack(g.lease.Claim)
		}
		return *q.got, nil
	}
	if err != nil {
		return Share{}, err
	}
	defer g.close()
	if q.Exclusive {
		return q.takeAll(g)
	}
	return q.takeSlot(g)
}

// takeSlot gets a slot. The slot is the request's only if the gate was its own until after that.
// Else another request may have found the slot free, and have the whole lock.
func (q *request) takeSlot(g *gate) (Share, error) {
	for {
		v, err := q.look()
		if err != nil {
			_ = g.leave()
			return Share{}, err
		}
		asked := lease.Now()
		taken, got, err := q.takeAtGate(g, v)
		if err != nil {
			_ = g.leave()
			return Share{}, err
		}
		if got {
			return q.confirm(g, taken, asked)
		}
		if err := g.await(v.soonest, v.held(q.Name, v.soonest)); err != nil {
			_ = g.leave()
			return Share{}, err
		}
	}
}

// confirm leaves the gate, and returns the share if the gate was the request's until then.
func (q *request) confirm(g *gate, taken lease.Lease, asked lease.Moment) (Share, error) {
	err := g.leave()
	if err == nil && (q.ctx.Err() == nil || q.IdempotencyKey != "") {
		_, slot, _ := ParseName(taken.Name)
		s, err := q.vouch(Share{Lease: taken, Lock: q.Name, Slot: slot, Fence: g.lease.Token, Asked: asked})
		s.Metadata = unmarked(s.Metadata)
		return s, err
	}
	if q.IdempotencyKey == "" { // else another sending of the request may have it by now
		q.giveBack(taken.Claim)
	}
	if err != nil && !errors.Is(err, errGateLost) {
		err = q.unknown(err)
	}
	return Share{}, cmp.Or(err, context.Cause(q.ctx))
}

// takeAtGate is takeFrom. If the store is so slow that the gate could end before the request leaves
// it, the gate is renewed meanwhile. If that fails, leaving shows that the gate was lost.
func (q *request) takeAtGate(g *gate, v *view) (taken lease.Lease, got bool, err error) {
	if q.passage() <= g.lease.Remaining {
		return q.takeFrom(v)
	}
	var renewing sync.WaitGroup
	defer renewing.Wait()
	renewing.Go(func() { _, _ = g.prolong(q.gateTTL()) })
	return q.takeFrom(v)
}

// takeFrom takes the slot that an earlier sending of the request has got, or else the first free
// one; false if there are too many leases for another.
func (q *request) takeFrom(v *view) (taken lease.Lease, got bool, err error) {
	r := q.AcquireRequest
	r.IdempotencyKey = cmp.Or(r.IdempotencyKey, rand.Text())
	r.Metadata = q.marked()
	for _, slot := range append(v.mine(q.Request), v.free(q.Slots)...) {
		r.Name = SlotName(q.Name, slot)
		if taken, err = q.config.Store.Acquire(q.ctx, r); !errors.Is(err, lease.ErrHeld) {
			return taken, err == nil, err
		}
	}
	return taken, false, nil
}

// takeAll gets the whole lock: it keeps the gate, and waits until no slot is taken.
func (q *request) takeAll(g *gate) (Share, error) {
	for {
		s, v, err := q.tryAll(g)
		if err == nil && v.taken > 0 {
			if err = g.await(v.latest, v.held(q.Name, v.latest)); err == nil {
				continue
			}
		}
		if err == nil && q.ctx.Err() != nil && q.IdempotencyKey == "" {
			err = context.Cause(q.ctx)
		}
		if err != nil && q.IdempotencyKey == "" { // else another sending of the request may have it by now
			q.giveBack(g.lease.Claim)
		}
		if err != nil {
			return Share{}, err
		}
		return s, nil
	}
}

// tryAll gets the whole lock if no slot is taken.
func (q *request) tryAll(g *gate) (s Share, v *view, err error) {
	if v, err = q.look(); err != nil || v.taken > 0 {
		return s, v, err
	}
	if err := q.endExpired(v); err != nil || v.taken > 0 {
		return s, v, err
	}
	asked := lease.Now()
	all, err := g.takeWhole()
	return Share{Lease: all, Lock: q.Name, Fence: all.Token, Asked: asked}, v, err
}

// endExpired makes sure that expired leases have ended. A read alone does not prove that, because a
// renewal that began in time may be in progress. A new lease of the slot does.
func (q *request) endExpired(v *view) error {
	for _, slot := range v.expired {
		l, err := q.config.Store.Acquire(q.ctx, lease.AcquireRequest{Name: SlotName(q.Name, slot), Holder: q.Holder, TTL: q.config.GateTTL, IdempotencyKey: rand.Text()})
		if held, ok := errors.AsType[*lease.HeldError](err); ok {
			v.take(held.Remaining, held.Holder)
			continue
		}
		if err != nil {
			return err
		}
		q.giveBack(l.Claim)
	}
	return nil
}

// giveBack releases a lease that no caller has received; else it expires.
func (q *request) giveBack(c lease.Claim) { _ = q.release(c) }

// cleanup bounds the work after the end of a context.
const cleanup = 5 * time.Second
