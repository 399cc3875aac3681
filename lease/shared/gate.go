package shared

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
)

// A gate is the lease that lets a request look at the slots and take one. Only the holder of the
// gate does so.
type gate struct {
	*request
	lease   lease.Lease
	renewed time.Time

	sleep     func(d time.Duration) error // nil = nobody has waited yet
	stopWatch func()
}

// errGateLost is the error of a request whose lease of the gate ended too early.
var errGateLost = errors.New("the lease of the gate ended too early")

// errSlotLost is the error of a request whose slot ended before it was returned.
var errSlotLost = errors.New("the lease of the slot ended too early")

// Metadata of a gate. Only the holder of the whole lock can change it, so a gate without a
// mode counts as kept.
const (
	modeKey       = "pglatch.mode"
	modeExclusive = "exclusive" // it is kept for the whole lock
	modePassing   = "passing"   // by a request for a slot

	waitsKey = "pglatch.waits" // the gate is not yet a lease of the whole lock: it does not have its terms
)

// gateRequest returns the request for the gate. Each sending of a request for a slot passes the
// gate by itself; sendings of a request for the whole lock keep it together.
func (q *request) gateRequest() lease.AcquireRequest {
	r := lease.AcquireRequest{Name: SlotName(q.Name, 0), Holder: q.Holder, TTL: q.gateTTL(), IdempotencyKey: rand.Text()}
	switch {
	case !q.Exclusive:
		r.Metadata = map[string]string{modeKey: modePassing}
		return r
	case q.hander != nil && (q.LockDelay > 0 || q.MaxLifetime > 0): // no client has the lock yet that they apply to
		r.TTL, r.Metadata = min(r.TTL, q.TTL), map[string]string{modeKey: modeExclusive, waitsKey: "yes"}
	default:
		ttl := min(r.TTL, q.TTL)
		r = q.wholeRequest()
		r.TTL = ttl
	}
	r.IdempotencyKey = cmp.Or(q.IdempotencyKey, r.IdempotencyKey)
	return r
}

// passing is how many operations the lease of a gate must outlast: its own acquire, the list of the
// slots, the acquire of a slot, and the release of the gate.
const passing = 4

// passage returns how long a request may need the gate, if the store is as slow as at the last look.
// A store that is slower than cleanup, for which an operation of the gate is retried, is too slow.
func (l *Locker) passage() time.Duration {
	return passing * min(time.Duration(l.took.Load()).Truncate(time.Millisecond), cleanup)
}

// gateTTL returns the TTL of a gate.
func (l *Locker) gateTTL() time.Duration { return max(l.config.GateTTL, l.passage()) }

// wholeRequest returns the request for the lease of the whole lock.
func (q *request) wholeRequest() lease.AcquireRequest {
	r := q.AcquireRequest
	r.Name, r.IdempotencyKey = SlotName(q.Name, 0), cmp.Or(q.IdempotencyKey, rand.Text())
	r.Metadata = maps.Clone(q.Metadata)
	if r.Metadata == nil {
		r.Metadata = make(map[string]string)
	}
	r.Metadata[modeKey] = modeExclusive
	if r.Validate() != nil { // too much metadata: without this mark, requests that do not wait are answered later
		r.Metadata = q.Metadata
	}
	return r
}

// enter gets the gate. A request that does not wait is refused at once if the lock is taken, and
// waits briefly if another request only passes.
func (q *request) enter() (*gate, error) {
	r, wait := q.gateRequest(), q.left()
	if !q.patient {
		if err := q.checkReaders(); err != nil {
			return nil, err
		}
		l, err := q.config.Store.Acquire(q.ctx, r)
		if !errors.Is(err, lease.ErrHeld) {
			return q.gate(l, err)
		}
		v, err := q.look()
		if err != nil {
			return nil, err
		}
		if err := v.refusal(q.Request); err != nil {
			return nil, err
		}
		wait = patience
	}
	return q.gate(q.standAtGate(r, wait))
}

// checkReaders refuses an exclusive request that does not wait, before it keeps others out.
func (q *request) checkReaders() error {
	if !q.Exclusive {
		return nil
	}
	v, err := q.look()
	if err == nil && v.taken > 0 {
		err = v.held(q.Name, v.latest)
	}
	return err
}

func (q *request) gate(l lease.Lease, err error) (*gate, error) {
	if held, ok := errors.AsType[*lease.HeldError](err); ok {
		held.Name = q.Name
	}
	if err != nil {
		return nil, err
	}
	g := &gate{request: q, lease: l, renewed: time.Now()}
	if q.ctx.Err() != nil && (!q.Exclusive || q.IdempotencyKey == "") {
		q.giveBack(l.Claim)
		return nil, context.Cause(q.ctx)
	}
	return g, nil
}

// acquireWait waits in the store's queue if it has one; else it retries.
func (q *request) acquireWait(ctx context.Context, r lease.AcquireRequest, wait time.Duration) (lease.Lease, error) {
	if q.line != nil {
		return q.line.AcquireWait(ctx, r, wait)
	}
	end := time.Now().Add(wait)
	for {
		l, err := q.config.Store.Acquire(ctx, r)
		held, ok := errors.AsType[*lease.HeldError](err)
		if !ok || time.Until(end) <= 0 {
			return l, err
		}
		if err := pause.For(ctx, min(held.Retry, q.config.PollInterval, time.Until(end))); err != nil {
			return lease.Lease{}, err
		}
	}
}

// await blocks until a slot may have become free, for at most until, and keeps the gate meanwhile.
// It returns held when the time to wait is over.
func (g *gate) await(until time.Duration, held error) error {
	left := g.left()
	if left <= 0 {
		return held
	}
	d := max(min(left, until, g.config.PollInterval, g.lease.Remaining/3), time.Millisecond)
	if g.sleep == nil {
		return g.watch() // and look again: an earlier release is not notified
	}
	if err := g.sleep(d); err != nil {
		return err
	}
	if time.Since(g.renewed) < g.lease.Remaining/3 {
		return nil
	}
	_, err := g.prolong(g.gateRequest().TTL)
	if err != nil && !errors.Is(err, errGateLost) {
		return nil // it is tried again, or found lost
	}
	return err
}

// watch begins to watch for releases.
func (g *gate) watch() (err error) {
	if g.notice == nil {
		g.sleep, g.stopWatch = func(d time.Duration) error { return pause.For(g.ctx, d) }, func() {}
		return nil
	}
	g.sleep, g.stopWatch, err = g.notice.Watch(g.ctx, g.Name)
	return err
}

// close ends the watch.
func (g *gate) close() {
	if g.sleep != nil {
		g.stopWatch()
	}
}

// prolong renews the gate. If that succeeds, the gate was the request's since it got it.
func (g *gate) prolong(ttl time.Duration) (lease.Lease, error) {
	now := time.Now()
	l, err := g.config.Store.Renew(g.ctx, lease.RenewRequest{Claim: g.lease.Claim, TTL: ttl})
	if lease.IsOver(err) {
		return l, fmt.Errorf("%w: %w", errGateLost, err)
	}
	if err == nil {
		g.lease, g.renewed = l, now
	}
	return l, err
}

// takeWhole makes the gate the lease of the whole lock, by a renewal or by another lease that
// replaces it at once. Either proves that the gate was the request's since it got it.
func (g *gate) takeWhole() (lease.Lease, error) {
	if g.lease.Metadata[waitsKey] == "" {
		return g.prolong(g.TTL)
	}
	l, released, acquired := g.hander.HandOver(g.ctx, lease.ReleaseRequest{Claim: g.lease.Claim}, g.wholeRequest())
	if acquired == nil {
		g.lease = l
	}
	switch {
	case released == nil && acquired == nil:
		return l, nil
	case released == nil: // it is free
		return l, fmt.Errorf("%w: %w", errGateLost, acquired)
	case lease.IsOver(released), acquired == nil: // others may have had it since, or another sending of the request has the lock
		return l, fmt.Errorf("%w: %w", errGateLost, released)
	}
	return l, released
}

// leave releases the gate to the next request. If it returns nil, the gate was the request's until
// then.
func (g *gate) leave() error {
	err := g.release(g.lease.Claim)
	if lease.IsOver(err) {
		err = fmt.Errorf("%w: %w", errGateLost, err)
	}
	return err
}

// release retries for a time, until the store has answered that the lease has ended.
func (q *request) release(c lease.Claim) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.ctx), cleanup)
	defer cancel()
	for {
		err := q.config.Store.Release(ctx, c) // a repeated release is no error
		if err == nil || lease.IsOver(err) || errors.Is(err, lease.ErrClosed) || errors.Is(err, lease.ErrInvalid) || pause.For(ctx, lease.MinTTL) != nil {
			return err
		}
	}
}
