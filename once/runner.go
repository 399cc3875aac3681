package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/pause"
)

// A Runner runs ticks that no other node runs. It is safe for concurrent use, has nothing to close,
// and keeps no state between calls.
type Runner struct{ config Config }

// New makes a Runner. It does not access the store. It returns *InvalidError for a field that is
// out of bounds.
func New(config Config) (*Runner, error) {
	config, err := config.validated()
	if err != nil {
		return nil, err
	}
	return &Runner{config}, nil
}

// A Result is the outcome of Do for a tick.
type Result struct {
	Did    bool // this call ran fn
	Record      // of the tick when Do returned: which node ran or runs it
}

// Do runs fn for a tick of a job, unless another node ran or runs it. The tick is the scheduled
// time, not the current time: nodes agree on it whatever their clocks say. Result.Did reports
// whether this call ran fn. If it did not, that is not an error, and Result.State is Ran, Failed
// or Running.
//
// The ctx of fn ends with ctx. If the claim cannot be renewed, it ends before another node can
// get the tick, with a *LostError as its cause. When it ends, fn must return. ClaimOf finds the
// claim and its token in the ctx of fn.
//
// Do returns fn's error, or:
//
//   - *WindowError if the tick is too old, or in the future
//   - *InvalidError for a field that is out of bounds, and for a nil fn: nothing was claimed
//   - *LostError, joined with fn's error, if the end could not be recorded: fn has run, at least in
//     part, and another node may run the tick again
//   - an error of the store from before the call of fn: nothing was run
//
// If fn panics, the tick ends as if fn had returned an error, but Retry is not called.
func (r *Runner) Do(ctx context.Context, job string, tick time.Time, fn func(ctx context.Context) error) (Result, error) {
	if err := CheckWork(fn); err != nil {
		return Result{}, err
	}
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

// Claim is the first half of Do, for schedulers that call the work themselves. The caller runs the
// tick, and must call End afterwards. Claim returns *TakenError if another node ran or runs it.
func (r *Runner) Claim(ctx context.Context, job string, tick time.Time) (*Run, error) {
	request := r.config.request(job, tick)
	if err := request.Validate(); err != nil {
		return nil, err
	}
	until := boottime.Present().Add(r.config.Wait)
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		sent := boottime.Present()
		claim, err := r.ask(ctx, request)
		if err == nil {
			return started(newRun(ctx, r.config, claim, sent))
		}
		taken, ok := errors.AsType[*TakenError](err)
		if !ok || taken.State != Running || until.Passed() {
			return nil, err
		}
		if err := pause.For(ctx, min(r.pollAfter(), until.Until())); err != nil {
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

// started returns the run if it may begin. If the store's answer came too late, it may not.
func started(r *Run) (*Run, error) {
	if r.work.Err() == nil {
		return r, nil
	}
	_, err := r.End(context.Cause(r.work))
	return nil, err
}

// pollAfter returns when to check again whether a run has ended.
func (r *Runner) pollAfter() time.Duration {
	return pause.AtMost(min(r.config.TTL/4, time.Second))
}
