package leasehttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/lease"
)

// ErrLost is the cause of the context that StartHeartbeat returned, if the lease could not be kept.
// It differs from advisory.ErrLost (of a lock) and leader.ErrLost (of leadership), because a
// program reacts differently to each.
var ErrLost = errors.New("lease lost")

// A LostError says why a lease was lost.
type LostError struct {
	Name  string
	Cause error // a *lease.StaleError or *lease.ExpiredError, or the reason why it could not be renewed in time
}

func (e *LostError) Error() string {
	return fmt.Sprintf("leasehttp: lease on %s lost: %v", e.Name, e.Cause)
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// HeartbeatOptions configure how StartHeartbeat renews. The zero value is a good default.
type HeartbeatOptions struct {
	// Interval is the time between renewals, minus a random part of at most a tenth. To share a
	// request with another lease of the client, a renewal can come earlier by up to a quarter of
	// Interval. Renewals come early enough to keep the lease, even if Interval is longer. 0 = a
	// third of the TTL.
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

	keeper renew.Keeper[error]
	alone  bool         // the next renewal is not shared
	shared <-chan error // the result of the next renewal, if others renew this lease with theirs

	// Guarded by together.mu.
	due     lease.Moment // of the next renewal
	renewed chan<- error // for that result, which does not block
}

// StartHeartbeat renews a lease until ctx ends, the lease is lost, or ReleaseOnce or Close is
// called.
//
// The returned context is for the work. It ends with ctx, and when the lease is released. It also
// ends, with a *LostError as its cause, when the lease can no longer be trusted. Whatever the
// renewals returned, the context ends before the server grants the lock to another holder. Its Err
// and Done check the clock: after a suspension of the machine, they find the end even before any
// timer has run. A channel that Done returned earlier, and derived contexts, can then be late by
// an Interval.
//
// The returned channel receives an error for each failed renewal and, last, the *LostError if
// there is one. It is then closed. You need not read it.
//
// Leases of one client are renewed in one request, if their renewals are due at about the same time
// and the leases can be trusted for about as long. The result of one does not affect the others. A
// failed renewal is tried again alone.
//
// A second heartbeat of a lease replaces the first.
func (c *Client) StartHeartbeat(ctx context.Context, l *Lease, options HeartbeatOptions) (context.Context, <-chan error) {
	l.stopHeartbeat()
	options.TTL = cmp.Or(options.TTL, l.request.TTL)
	options.Interval = renew.Times{Duration: options.TTL, Interval: options.Interval}.WithDefaults().Interval
	h := &heartbeat{
		client: c, lease: l, HeartbeatOptions: options,
		errs: make(chan error, maxErrors+1), ended: make(chan struct{}),
	}
	work, lost := boottime.NewContext(context.WithValue(ctx, leaseKey{}, l), h.expired)
	renewals, stop := context.WithCancel(work)
	h.lost, h.stop = lost, stop
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
		h.end(work, errClosed)
		close(h.ended)
	}
	return work, h.errs
}

// expired returns a *LostError if the lease can no longer be trusted.
func (h *heartbeat) expired() error {
	if h.lease.trusted().Passed() {
		return h.late(renew.ErrExpired)
	}
	return nil
}

func (h *heartbeat) late(cause error) *LostError {
	return &LostError{Name: h.lease.request.Name, Cause: cause}
}

var (
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

// run renews the lease until it is lost or ctx ends.
func (h *heartbeat) run(ctx context.Context) {
	defer close(h.ended)
	pause := max(min(h.Interval, h.TTL/3)/8, time.Millisecond)
	h.keeper = renew.Keeper[error]{
		Rules: renew.Rules{Interval: h.Interval, Pause: pause, Longest: max(h.Interval, pause)}, // a server has many clients
		Left:  h.lease.Remaining, Renew: h.renew, Judge: h.judge, Others: h.await,
	}
	cause := h.keeper.Run(ctx, boottime.Present())
	h.client.together.leave(h)
	h.end(ctx, cause)
	h.keeper.Close()
}

// await lets other heartbeats renew the lease with theirs, before its next renewal is due. A
// failed renewal is tried again alone.
func (h *heartbeat) await(wait time.Duration) (shorter time.Duration, answers <-chan error) {
	failures := h.keeper.Failures()
	// The last wait, which ends with the lease, is not shortened: that would halve it again and again.
	shorter = max(pause.AtMost(wait), min(wait, h.keeper.Rules.Pause/2))
	if failures == 0 {
		shorter = pause.Jitter(wait*19/20, 0.05)
	}
	h.shared = nil
	if h.alone = failures%2 == 1; !h.alone {
		h.shared = h.client.together.enter(h, shorter)
	}
	return shorter, h.shared
}

// renew renews the lease, and others with it that are due soon.
func (h *heartbeat) renew(ctx context.Context) error {
	if h.alone {
		return h.renewAlone(ctx)
	}
	if all := h.client.together.gather(h); len(all) > 0 && !h.client.goIfOpen(func() { h.client.renewTogether(all) }) {
		return errClosed
	}
	timer := time.NewTimer(h.lease.Remaining() / 2)
	defer timer.Stop()
	select {
	case err := <-h.shared:
		return err
	case <-timer.C: // this lease does not depend on the shared answer, which is still used if it comes later
		return h.renewAlone(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *heartbeat) renewAlone(ctx context.Context) error {
	var r renewal
	r.lease, r.from, r.err = h.client.renew(ctx, h.request(), noLine, nil)
	return h.take(r)
}

func (h *heartbeat) request() lease.RenewRequest {
	return lease.RenewRequest{Claim: h.lease.Claim(), TTL: h.TTL}
}

// take records the result of a renewal.
func (h *heartbeat) take(r renewal) error {
	if r.err == nil && !h.lease.renewed(r.lease, r.from) {
		return renew.ErrExpired
	}
	return r.err
}

func (h *heartbeat) judge(err error, _ boottime.Moment) (renew.Event, error) {
	switch {
	case err == nil:
		return renew.Kept, nil
	case errors.Is(err, renew.ErrExpired):
		return renew.Gone, nil
	case lease.IsOver(err):
		return renew.Gone, err
	}
	h.report(err)
	return renew.Failed, err
}

// end ends the work and closes the channel. A nil cause means that the heartbeat was stopped, or
// that the work's context found the loss first.
func (h *heartbeat) end(ctx context.Context, cause error) {
	if cause != nil {
		h.lost(h.late(cause))
	}
	h.lost(context.Canceled)
	if lost, ok := errors.AsType[*LostError](context.Cause(ctx)); ok {
		h.errs <- lost
	}
	h.stop()
	close(h.errs)
}

// report sends an error to the channel, if there is room for it beside the last one.
func (h *heartbeat) report(err error) {
	if len(h.errs) < maxErrors { // only this goroutine sends
		h.errs <- err
	}
}
