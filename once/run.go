package once

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
)

// A Run is the right to run one tick. It is renewed in the background until End. It is safe for
// concurrent use.
type Run struct {
	config Config
	claim  Claim
	parent context.Context //nolint:containedctx // the caller's; End checks whether it cut the run short
	work   workContext
	lose   context.CancelCauseFunc
	stop   context.CancelFunc // the renewals
	ended  chan struct{}      // they have

	mu    sync.Mutex
	until lease.Moment // until then the claim is trusted
	guard *time.Timer

	end sync.Once
	// Set by end.
	record Record
	err    error
}

func newRun(ctx context.Context, config Config, c Claim, sent lease.Moment) *Run {
	r := &Run{config: config, claim: c, parent: ctx, ended: make(chan struct{})}
	inner, lose := context.WithCancelCause(context.WithValue(ctx, claimKey{}, c))
	r.work, r.lose = workContext{inner, r}, lose
	r.until = trust(sent, c.Remaining)
	r.mu.Lock() // expire reads guard
	r.guard = time.AfterFunc(r.until.Remaining(), r.expire)
	r.mu.Unlock()
	renewals, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	go r.renew(renewals)
	return r
}

func trust(sent lease.Moment, remaining time.Duration) lease.Moment {
	return lease.Trust(sent, lease.Lease{Remaining: remaining}, 0)
}

type claimKey struct{}

// ClaimOf returns the claim under which a function of Do or DoTx runs: its tick and its fencing token.
func ClaimOf(ctx context.Context) (Claim, bool) {
	c, ok := ctx.Value(claimKey{}).(Claim)
	return c, ok
}

// WithClaim returns a context in which ClaimOf finds the claim, for stores that run work themselves.
func WithClaim(ctx context.Context, c Claim) context.Context {
	return context.WithValue(ctx, claimKey{}, c)
}

// Claim returns the claim.
func (r *Run) Claim() Claim { return r.claim }

// Context returns the context for the work: see Do.
func (r *Run) Context() context.Context { return &r.work }

// A workContext checks the clock: work on a machine that was suspended must not go on before the
// timers have run.
type workContext struct {
	context.Context

	run *Run
}

func (c *workContext) Err() error {
	if c.Context.Err() == nil && c.run.trusted().Passed() {
		c.run.lose(c.run.late(errLate))
	}
	return c.Context.Err()
}

var errLate = errors.New("it was not renewed in time")

func (r *Run) late(cause error) *LostError {
	return &LostError{Job: r.claim.Job, Tick: r.claim.Tick, Cause: cause}
}

func (r *Run) trusted() lease.Moment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.until
}

// expire ends the work when the claim can no longer be trusted, even if a renewal hangs.
func (r *Run) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if remaining := r.until.Remaining(); remaining > 0 {
		r.guard.Reset(remaining)
		return
	}
	r.lose(r.late(errLate))
}

// renew prolongs the claim until it is stopped, or lost.
func (r *Run) renew(ctx context.Context) {
	defer close(r.ended)
	interval := r.config.TTL / 3
	for next := interval; ; {
		if pause.For(ctx, min(next, r.trusted().Remaining())) != nil || r.trusted().Passed() {
			return
		}
		sent := lease.Now()
		within, cancel := context.WithTimeout(ctx, r.trusted().Remaining())
		remaining, err := r.config.Store.Renew(within, r.claim, r.config.TTL)
		cancel()
		switch {
		case err == nil:
			next = interval
			r.prolong(trust(sent, remaining))
		case errors.Is(err, ErrLost):
			r.lose(err)
			return
		default:
			next = interval / 4
		}
	}
}

func (r *Run) prolong(until lease.Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until.Remaining() > r.until.Remaining() {
		r.until = until
	}
}

var errPanicked = errors.New("the work panicked")

// do runs fn and ends the run, even if fn panics or ends its goroutine.
func (r *Run) do(fn func(context.Context) error) (Record, error) {
	returned := false
	defer func() {
		if !returned {
			_, _ = r.End(errPanicked)
		}
	}()
	err := fn(&r.work)
	returned = true
	return r.End(err)
}

// End records how the run ended: with err, or nil for success. It retries until the claim has
// expired, even if the ctx of Claim has ended. The error is err, joined with a *LostError if the
// end could not be recorded. Once a run has ended, End only returns the result of the first call.
func (r *Run) End(err error) (Record, error) {
	r.end.Do(func() {
		state := r.outcome(err)
		noted := r.note(state)
		r.stop()
		<-r.ended
		r.guard.Stop()
		r.lose(context.Canceled)
		r.record = Record{Job: r.claim.Job, Tick: r.claim.Tick, State: state, Node: r.claim.Node, Token: r.claim.Token, Began: r.claim.Began}
		r.err = err
		if noted != nil {
			r.record.State = Running // as far as this node knows
			r.err = errors.Join(err, noted)
		}
	})
	return r.record, r.err
}

// outcome returns the state of the tick after its run.
func (r *Run) outcome(err error) State {
	switch {
	case err == nil:
		return Ran
	case errors.Is(err, errPanicked):
		return Failed
	case r.work.Err() != nil: // cut short
		return Open
	case r.config.Retry != nil && r.config.Retry(err):
		return Open
	}
	return Failed
}

// note stores the outcome. It tries at least once, because an expired claim can be ended as long as
// no other node has the tick.
func (r *Run) note(s State) error {
	ctx := context.WithoutCancel(r.parent)
	for {
		within, cancel := context.WithTimeout(ctx, max(r.trusted().Remaining(), r.config.TTL))
		err := r.config.Store.End(within, r.claim, s)
		cancel()
		if err == nil || errors.Is(err, ErrLost) {
			return err
		}
		if r.trusted().Passed() {
			return r.late(err)
		}
		_ = pause.For(ctx, min(r.config.TTL/20, r.trusted().Remaining()))
	}
}
