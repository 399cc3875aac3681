package advisory

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// tell calls a tracer. One that panics must not leave a lock, a session or a
// request behind: the panic is logged, and the lock's business goes on.
func (c *core) tell(ctx context.Context, call func()) {
	defer func() {
		if p := recover(); p != nil {
			c.config.Logger.ErrorContext(ctx, "tracer panicked", slog.Any("panic", p))
		}
	}()
	call()
}

// traceAcquire counts and reports how a request ended.
func (c *core) traceAcquire(ctx context.Context, r *request, err error) {
	switch {
	case err == nil:
		c.stats.acquired.Add(1)
		if r.handOver {
			c.stats.handOvers.Add(1)
		}
	case errors.Is(err, ErrTimeout):
		c.stats.timeouts.Add(1)
	}
	if t := c.tracers.acquire; t != nil {
		c.tell(ctx, func() {
			t.TraceAcquire(ctx, AcquireData{
				Key: r.name, Label: r.lock.label, Shared: r.lock.Shared(), Try: r.try, Waited: time.Since(r.start), Err: err,
			})
		})
	}
	if t := c.tracers.hold; t != nil && err == nil {
		c.tell(ctx, func() {
			t.TraceHold(ctx, HoldData{
				Key: r.lock.Key(), Label: r.lock.label, Shared: r.lock.Shared(), PID: r.lock.PID(), HandOver: r.handOver,
			})
		})
	}
}

// traceWait reports that a request waits.
func (c *core) traceWait(ctx context.Context, r *request, ahead int) {
	if t := c.tracers.wait; t != nil {
		c.tell(ctx, func() {
			t.TraceWait(ctx, WaitData{Key: r.name, Label: r.lock.label, Shared: r.lock.Shared(), Ahead: ahead})
		})
	}
}

func (c *core) traceRelease(l *Lock, err error) {
	if t := c.tracers.release; t != nil {
		c.tell(l.parent, func() {
			t.TraceRelease(l.parent, ReleaseData{Key: l.Key(), Label: l.label, Held: time.Since(l.since), Err: err})
		})
	}
}

// traceLoss counts and reports a lost lock; nobody may be listening to its context.
func (c *core) traceLoss(l *Lock, loss *LostError) {
	c.stats.lost.Add(1)
	c.config.Logger.WarnContext(l.parent, "lock lost", slog.String("key", l.Key().String()),
		slog.Duration("held", loss.Held), slog.Any("err", loss.Cause))
	if t := c.tracers.loss; t != nil {
		c.tell(l.parent, func() { t.TraceLoss(l.parent, LossData{Key: l.Key(), Label: l.label, Err: loss}) })
	}
}
