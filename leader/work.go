package leader

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

// Run runs work while the node leads. On each new leadership it calls work with a context that ends when
// leadership or ctx ends. That context has the values of Start's ctx and of Run's ctx. In an orderly end,
// leadership is released only when work has returned or DrainTimeout has passed. After a loss, this node's
// next attempt waits until work has returned.
//
// Run returns in these cases:
//
//   - work returns on its own: with work's error. If Start started the Elector, the node continues
//     to lead, without work.
//   - ctx ends: with nil, or with work's error if that is not its context's error.
//   - the Elector stops: with nil after Shutdown. If it stopped on its own, the error matches ErrGaveUp. For
//     example, the Elector stops on its own if an attempt fails with a permanent error, unless the node has led,
//     or has followed for LeaseDuration; see Config.KeepTrying.
//   - work is nil: with a *ConfigError. Nothing was started.
//
// If the Elector was not started, Run starts it, treats the end of ctx as a request to stop, and shuts it
// down before it returns.
func (e *Elector) Run(ctx context.Context, work func(ctx context.Context) error) error {
	if work == nil {
		return wrong("work", "nil", "pass the function that runs while the node leads, or call Start to lead without one")
	}
	l, began := e.begin(ctx, ctx)
	if l == nil {
		return nil // ctx has ended
	}
	if began {
		defer func() {
			l.stop()
			<-l.done
		}()
	}
	for {
		t, err := e.join(ctx, l)
		switch {
		case ctx.Err() != nil && t == nil, errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrGaveUp):
			return nil // the requested end
		case err != nil:
			return err
		}
		over, err := e.serve(ctx, t, work)
		switch {
		case ctx.Err() != nil || !over:
			return err
		case err != nil:
			e.log.Warn("work failed after leadership ended", slog.Any("error", err))
		}
	}
}

// serve runs work once. over reports whether work returned because its context ended. An error that only says
// so is dropped.
func (e *Elector) serve(ctx context.Context, t *activeTerm, work func(context.Context) error) (over bool, err error) {
	defer e.leave()
	inner, cancel := boottime.NewContext(t.ctx, t.expired)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	wctx := &workContext{inner, ctx}
	err = work(wctx)
	over = wctx.Err() != nil
	if over && (errors.Is(err, wctx.Err()) || errors.Is(err, context.Cause(wctx))) {
		err = nil
	}
	return over, err
}

// A workContext is the leader's context for work, combined with Run's.
type workContext struct {
	*boottime.Context
	run context.Context
}

// Value returns the value from the leader's context, which includes Start's values, or else from Run's.
func (c *workContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.run.Value(key)
}

// join waits for a term of l and counts the caller's work, so that the end of the term waits for it.
func (e *Elector) join(ctx context.Context, l *lifecycle) (*activeTerm, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		t, err := e.awaitTerm(ctx, l)
		if err != nil {
			return nil, err
		}
		e.mu.Lock()
		if e.lifecycle == l && e.current.Load() == t && t.ctx.Err() == nil {
			e.working++
			e.mu.Unlock()
			return t, nil
		}
		e.mu.Unlock()
	}
}

// works reports whether work is running.
func (e *Elector) works() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.working > 0
}

func (e *Elector) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.working--
	e.notifyLocked()
}

// awaitWork waits until no work is running. It returns false if first or second, which may be nil, is closed
// before, or if limit has passed; limit = 0 is no limit. It reports failed renewals meanwhile.
func (d *drive) awaitWork(limit time.Duration, first, second <-chan struct{}) bool {
	var timeout <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	var health <-chan error
	if d.active != nil {
		health = d.active.health
	}
	for {
		d.mu.Lock()
		working, changed := d.working, d.changed
		d.mu.Unlock()
		if working == 0 {
			return true
		}
		select {
		case <-changed:
		case err := <-health:
			if err != nil {
				d.emit(Event{Kind: EventError, Err: err})
			}
		case <-timeout:
			return false
		case <-first:
			return false
		case <-second:
			return false
		}
	}
}
