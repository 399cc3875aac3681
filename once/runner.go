package once

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
)

// A Runner runs ticks that no other node runs. It is safe for concurrent use, has nothing to close,
// and keeps nothing between calls.
type Runner struct{ config Config }

// New makes a Runner. It does not touch the store. *InvalidError for a field that is out of bounds.
func New(config Config) (*Runner, error) {
	config, err := config.validated()
	if err != nil {
		return nil, err
	}
	return &Runner{config}, nil
}

// A Result is what became of a tick in Do.
type Result struct {
	Did    bool // this call ran fn
	Record      // of the tick when Do returned: by whom it was run, or is
}

// Do runs fn for a tick of a job, unless another node has or does. The tick is the scheduled time,
// not the present: nodes agree on it whatever their clocks say. Result.Did tells whether it was this
// call; if not, that is no error, and Result.State says Ran, Failed or Running.
//
// The ctx of fn ends with ctx, and before another node can be given the tick, with a *LostError as
// its cause, if the claim could not be renewed; ClaimOf finds the claim and its token there. fn must
// return then.
//
// The error is fn's; *WindowError if the tick is too old, or to come; *InvalidError; *LostError,
// joined with fn's error, if the end could not be noted: fn has run, or part of it, and another node may
// run the tick again. Another error is the store's, before fn was called: nothing was run. When fn
// panics, the tick ends as if it had failed with an error that Retry is not asked about.
func (r *Runner) Do(ctx context.Context, job string, tick time.Time, fn func(ctx context.Context) error) (Result, error) {
	run, err := r.Claim(ctx, job, tick)
	if taken, ok := errors.AsType[*TakenError](err); ok {
		return Result{Record: taken.Record}, nil
	}
	if err != nil {
		return Result{}, err
	}
	record, err := run.do(fn)
	return Result{Did: true, Record: record}, err
}

// Claim is the first half of Do, for schedulers that call the work themselves: the caller is the one
// that runs the tick, and must call End when it has. *TakenError if another node has run it or does.
func (r *Runner) Claim(ctx context.Context, job string, tick time.Time) (*Run, error) {
	request := r.config.request(job, tick)
	if err := request.Validate(); err != nil {
		return nil, err
	}
	until := lease.Now().Add(r.config.Wait)
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		sent := lease.Now()
		claim, err := r.ask(ctx, request)
		if err == nil {
			return started(newRun(ctx, r.config, claim, sent))
		}
		taken, ok := errors.AsType[*TakenError](err)
		if !ok || taken.State != Running || until.Passed() {
			return nil, err
		}
		if err := pause.For(ctx, min(r.pollAfter(), until.Remaining())); err != nil {
			return nil, err
		}
	}
}

// ask asks the store for a claim, for no longer than the claim would last.
func (r *Runner) ask(ctx context.Context, request Request) (Claim, error) {
	within, cancel := context.WithTimeout(ctx, request.TTL)
	defer cancel()
	c, err := r.config.Store.Claim(within, request)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("once: claiming %s: the store did not answer within the TTL, %v: %w", name(request.Job, request.Tick), request.TTL, err)
	}
	return c, err
}

// started returns a run that may begin, which one whose answer came too late may not.
func started(r *Run) (*Run, error) {
	if r.work.Err() == nil {
		return r, nil
	}
	_, err := r.End(context.Cause(&r.work))
	return nil, err
}

// pollAfter is when to look again whether a run has ended.
func (r *Runner) pollAfter() time.Duration {
	const longest = time.Second
	half := min(r.config.TTL/4, longest) / 2
	return half + rand.N(half)
}
