package leader

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Run runs work while the node leads: each time that it gets leadership work is
// called with a context that ends when leadership does, or ctx. Leadership that
// ends in good order is released only when work has returned, or DrainTimeout is
// over; so is the next attempt of this node after a loss.
//
// Run returns when work returns of itself, with work's error; when ctx ends, with
// nil, or work's error if that is another than its context's; and when the Elector
// stops, with nil after Shutdown and an error that matches ErrGaveUp if it stopped
// of itself. If the Elector was not started Run starts it, and shuts it
// down before it returns.
func (e *Elector) Run(ctx context.Context, work func(ctx context.Context) error) error {
	began, err := e.begin(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	if began != nil {
		defer func() { _ = e.Shutdown(context.WithoutCancel(ctx)) }()
		defer context.AfterFunc(ctx, began.stop)() // the request: DrainTimeout begins
	}
	for {
		t, err := e.join(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, ErrNotLeader) {
				return nil // the end that was asked for
			}
			return err
		}
		over, err := e.serve(ctx, t, work)
		switch {
		case ctx.Err() != nil || !over:
			return err
		case err != nil:
			e.config.Logger.Warn("work failed after leadership ended", slog.String("election", e.config.Name), slog.Any("error", err))
		}
	}
}

// serve runs work once. over tells whether it returned because its context ended;
// an error that only says so is dropped.
func (e *Elector) serve(ctx context.Context, t *tenure, work func(context.Context) error) (over bool, err error) {
	defer e.leave()
	inner, cancel := context.WithCancelCause(t.ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	wctx := &tenureContext{Context: inner, tenure: t}
	err = work(wctx)
	over = wctx.Err() != nil
	if over && (errors.Is(err, wctx.Err()) || errors.Is(err, context.Cause(wctx))) {
		err = nil
	}
	return over, err
}

// join waits for a tenure and counts the caller's work, so that the tenure's end
// waits for it.
func (e *Elector) join(ctx context.Context) (*tenure, error) {
	for {
		t, err := e.awaitTenure(ctx)
		if err != nil {
			return nil, err
		}
		e.mu.Lock()
		if e.current.Load() == t && t.ctx.Err() == nil {
			e.working++
			e.mu.Unlock()
			return t, nil
		}
		e.mu.Unlock()
	}
}

func (e *Elector) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.working--
	e.notifyLocked()
}

// awaitWork waits until no work runs; false if one of the others came first.
// limit = 0 is no limit.
func (e *Elector) awaitWork(limit time.Duration, others ...<-chan struct{}) bool {
	var timeout <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	var first, second <-chan struct{}
	if len(others) > 0 {
		first = others[0]
	}
	if len(others) > 1 {
		second = others[1]
	}
	for {
		e.mu.Lock()
		working, changed := e.working, e.changed
		e.mu.Unlock()
		if working == 0 {
			return true
		}
		select {
		case <-changed:
		case <-timeout:
			return false
		case <-first:
			return false
		case <-second:
			return false
		}
	}
}
