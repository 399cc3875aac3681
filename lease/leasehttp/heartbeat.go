package leasehttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// ErrLost is the cause of a StartHeartbeat context's end if its lease could not be kept. It differs
// from advisory.ErrLost (of a lock) and leader.ErrLost (of leadership), because a program reacts
// differently to each.
var ErrLost = errors.New("lease lost")

// A LostError says why a lease was lost.
type LostError struct {
	Name  string
	Cause error // a *lease.StaleError or *lease.ExpiredError, or why it could not be renewed in time
}

func (e *LostError) Error() string {
	return fmt.Sprintf("leasehttp: lease on %s lost: %v", e.Name, e.Cause)
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// HeartbeatOptions configure how StartHeartbeat renews. The zero value is good.
type HeartbeatOptions struct {
	// Interval is the time between renewals, jittered by a tenth. If another lease of the client is
	// renewed, a renewal can be up to a quarter of it earlier. 0 = a third of the TTL.
	Interval time.Duration
	TTL      time.Duration // of each renewal. 0 = as acquired
}

// maxErrors is how many errors a heartbeat's channel buffers, besides the last one.
const maxErrors = 16

// A heartbeat renews one lease.
type heartbeat struct {
	client *Client
	lease  *Lease
	HeartbeatOptions
	errs  chan error
	lost  context.CancelCauseFunc
	stop  context.CancelFunc
	ended chan struct{}

	// Guarded by together.mu.
	due     lease.Moment // of the next renewal
	renewed chan error   // of size one: the result, if others renewed this lease with theirs
}

// StartHeartbeat renews a lease until ctx ends, the lease is lost, or ReleaseOnce or Close is
// called.
//
// The returned context is for the work. It ends with ctx and with the release. It also ends, with a
// *LostError as its cause, when the lease can no longer be trusted. That is before the server
// grants the lock to another holder, whatever the result of the renewals. Its Err checks the clock:
// after a suspension of the machine, Err is not nil even before any timer has run. Done, and
// contexts derived from it, can be late by an Interval unless Err is called.
//
// The channel receives an error for each failed renewal and, at last, the *LostError if there is
// one. It is closed at the end, and need not be read.
//
// Leases of one client are renewed in one request, if their renewals are due at about the same time
// and the leases can be trusted for about as long. The result of one does not affect the others. A
// failed renewal is tried again alone.
//
// A second heartbeat of a lease replaces the first.
func (c *Client) StartHeartbeat(ctx context.Context, l *Lease, options HeartbeatOptions) (context.Context, <-chan error) {
	l.stopHeartbeat()
	options.TTL = cmp.Or(options.TTL, l.request.TTL)
	options.Interval = cmp.Or(options.Interval, options.TTL/3)
	inner, lost := context.WithCancelCause(context.WithValue(ctx, leaseKey{}, l))
	renewals, stop := context.WithCancel(inner)
	h := &heartbeat{
		client: c, lease: l, HeartbeatOptions: options,
		errs: make(chan error, maxErrors+1), lost: lost, stop: stop, ended: make(chan struct{}),
	}
	l.mu.Lock()
	l.beat = h
	l.mu.Unlock()
	unhook := context.AfterFunc(c.ctx, stop)
	started := c.goIfOpen(func() {
		defer unhook()
		h.run(renewals)
	})
	if !started {
		unhook()
		h.end(inner, errClosed)
	}
	return &workContext{Context: inner, beat: h}, h.errs
}

// A workContext is the context of a heartbeat's work.
type workContext struct {
	context.Context

	beat *heartbeat
}

// Err checks the clock: work on a machine that was suspended must not go on before the timers have
// run.
func (c *workContext) Err() error {
	if c.Context.Err() == nil && c.beat.lease.trusted().Passed() {
		c.beat.lost(c.beat.late())
	}
	return c.Context.Err()
}

// late returns the error of a lease whose trusted time is over.
func (h *heartbeat) late() *LostError {
	return &LostError{Name: h.lease.request.Name, Cause: errLate}
}

var (
	errLate   = errors.New("it was not renewed in time")
	errEnds   = errors.New("the lease ends")
	errClosed = errors.New("the client is closed")
)

func (l *Lease) stopHeartbeat() {
	l.mu.Lock()
	h := l.beat
	l.mu.Unlock()
	if h != nil {
		h.stop()
		<-h.ended
	}
}

// run renews the lease. The guard ends the work's context in time even if a renewal hangs.
func (h *heartbeat) run(ctx context.Context) {
	guard := h.guard()
	defer guard.Stop()
	failures := 0
	for {
		next := wire.Jitter(h.Interval/5) + h.Interval*9/10
		if failures > 0 {
			next = min(next, wire.Jitter(h.Interval/8<<min(failures-1, 3)))
		}
		err := h.renewIn(ctx, min(next, h.lease.Remaining()), failures%2 == 1 || h.client.sendsSingly())
		switch {
		case err == nil:
			failures = 0
		case ctx.Err() != nil:
			h.end(ctx, nil)
			return
		case errors.Is(err, errLate), errors.Is(err, lease.ErrStale), errors.Is(err, lease.ErrExpired), errors.Is(err, lease.ErrNotFound):
			h.end(ctx, err)
			return
		default:
			failures++
			h.report(err)
		}
	}
}

// renewIn renews the lease after d, or earlier together with others. The error is errLate if the
// lease ended.
func (h *heartbeat) renewIn(ctx context.Context, d time.Duration, alone bool) error {
	if alone {
		if err := pause.For(ctx, d); err != nil {
			return err
		}
		return h.renewAlone(ctx)
	}
	t := &h.client.together
	renewed := t.enter(h, d)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case err := <-renewed:
		return err
	case <-timer.C:
	case <-ctx.Done():
		t.leave(h)
		return context.Cause(ctx)
	}
	all := t.gather(h)
	if len(all) == 1 {
		return h.renewAlone(ctx)
	}
	if len(all) > 1 && !h.client.goIfOpen(func() { h.client.renewTogether(all) }) {
		return errClosed
	}
	timer.Reset(h.lease.Remaining() / 2)
	select {
	case err := <-renewed:
		return err
	case <-timer.C: // this lease does not depend on the shared answer, which is still used if it comes later
		return h.renewAlone(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *heartbeat) renewAlone(ctx context.Context) error {
	if h.lease.trusted().Passed() {
		return errLate
	}
	ctx, cancel := context.WithTimeoutCause(ctx, h.lease.Remaining(), errEnds)
	defer cancel()
	var r renewal
	r.lease, r.from, r.err = h.client.renew(ctx, h.request())
	return h.take(r)
}

func (h *heartbeat) request() lease.RenewRequest {
	return lease.RenewRequest{Claim: h.lease.Claim(), TTL: h.TTL}
}

// take records the result of a renewal.
func (h *heartbeat) take(r renewal) error {
	if r.err == nil {
		h.lease.renewed(r.lease, r.from)
	}
	return r.err
}

// guard ends the work's context when the lease can no longer be trusted.
func (h *heartbeat) guard() *time.Timer {
	var timer *time.Timer
	set := make(chan struct{})
	timer = time.AfterFunc(h.lease.Remaining(), func() {
		<-set
		if remaining := h.lease.Remaining(); remaining > 0 {
			timer.Reset(remaining)
			return
		}
		h.lost(h.late())
	})
	close(set)
	return timer
}

// end ends the work and closes the channel. A nil cause means that the heartbeat was stopped, or
// that the guard was faster.
func (h *heartbeat) end(ctx context.Context, cause error) {
	if cause != nil {
		h.lost(&LostError{Name: h.lease.request.Name, Cause: cause})
	}
	h.lost(context.Canceled)
	if lost, ok := errors.AsType[*LostError](context.Cause(ctx)); ok {
		h.errs <- lost
	}
	h.stop()
	close(h.errs)
	close(h.ended)
}

// report sends an error to the channel, if there is room for it beside the last one.
func (h *heartbeat) report(err error) {
	if len(h.errs) < maxErrors { // only this goroutine sends
		h.errs <- err
	}
}
