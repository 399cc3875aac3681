package once

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/renew"
)

// A Run is the right to run one tick. It is renewed in the background until End. It is safe for
// concurrent use.
type Run struct {
	config Config
	claim  Claim
	parent context.Context //nolint:containedctx // the caller's; End checks whether it cut the run short
	work   *boottime.Context
	lose   context.CancelCauseFunc
	until  boottime.Deadline  // until then the claim is trusted
	stop   context.CancelFunc // the renewals
	ended  chan struct{}      // they have

	end sync.Once
	// Set by end.
	record Record
	err    error
}

// newRun begins the run of a claim that was requested at sent.
func newRun(ctx context.Context, config Config, c Claim, sent boottime.Moment) *Run {
	r := &Run{config: config, claim: c, parent: ctx, ended: make(chan struct{})}
	r.until.Set(trust(sent, c.Remaining))
	work, lose := boottime.NewContext(WithClaim(ctx, c), r.expired)
	r.work, r.lose = work, func(cause error) {
		_ = background.Outlive(func() error { lose(cause); return nil }) // it calls methods of ctx
	}
	renewals, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	go r.renew(renewals, sent)
	return r
}

// trust returns the Moment until which a claim is trusted that lasted remaining after a request of sent.
func trust(sent boottime.Moment, remaining time.Duration) boottime.Moment {
	return sent.Add(renew.Times{Duration: remaining}.Trust())
}

type claimKey struct{}

// ClaimOf returns the claim under which the function of a Do or DoTx call runs, with its tick and its
// fencing token.
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
func (r *Run) Context() context.Context { return r.work }

// expired returns a *LostError if the claim can no longer be trusted.
func (r *Run) expired() error {
	if r.until.Passed() {
		return r.late(renew.ErrExpired)
	}
	return nil
}

func (r *Run) late(cause error) *LostError {
	return &LostError{Job: r.claim.Job, Tick: r.claim.Tick, Cause: cause}
}

// A renewal is the answer of Store.Renew.
type renewal struct {
	remaining time.Duration
	err       error
}

// renew prolongs the claim until it is stopped, or lost.
func (r *Run) renew(ctx context.Context, sent boottime.Moment) {
	defer close(r.ended)
	k := &renew.Keeper[renewal]{
		Rules: renew.Times{Duration: r.config.TTL}.WithDefaults().Rules(), Left: r.until.Left, Judge: r.judge,
		Renew: func(ctx context.Context) renewal {
			var remaining time.Duration
			err := background.Outlive(func() (err error) { remaining, err = r.config.Store.Renew(ctx, r.claim, r.config.TTL); return err })
			return renewal{remaining, err}
		},
	}
	cause := k.Run(ctx, sent)
	switch {
	case errors.Is(cause, ErrLost):
		r.lose(cause)
	case cause != nil:
		r.lose(r.late(cause))
	}
	k.Close()
}

func (r *Run) judge(a renewal, sent boottime.Moment) (renew.Event, error) {
	return renew.Judge(a.err, &r.until, trust(sent, a.remaining), ErrLost)
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
	err := fn(r.work)
	returned = true
	return r.End(err)
}

// End records how the run ended: with err, or nil for success. It retries until the claim has
// expired, even if the ctx of Claim has ended. The error is err, joined with a *LostError if the
// end could not be recorded. Once a run has ended, End only returns the result of the first call.
func (r *Run) End(err error) (Record, error) {
	r.end.Do(func() {
		state := Failed
		if failure := background.Outlive(func() error { state = r.outcome(err); return nil }); failure != nil {
			err = errors.Join(err, fmt.Errorf("once: Config.Retry: %w", failure))
		}
		noted := r.note(state)
		r.stop()
		<-r.ended
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
		within, cancel := context.WithTimeout(ctx, max(r.until.Left(), r.config.TTL))
		err := background.Outlive(func() error { return r.config.Store.End(within, r.claim, s) })
		cancel()
		if err == nil || errors.Is(err, ErrLost) {
			return err
		}
		if r.until.Passed() {
			return r.late(err)
		}
		_ = pause.For(ctx, min(r.config.TTL/20, r.until.Left()))
	}
}
