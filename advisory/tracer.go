package advisory

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/namespace"
)

// A Tracer is told what happens to locks, on the goroutine where it happens and without
// a mutex held. Its functions must be quick and safe for concurrent use; nil ones are not
// called. One that panics is logged, and changes nothing.
type Tracer struct {
	// Open is told of the Locker that it is for, whose Stats and Held it may ask from then on.
	// What it returns, if not nil, is called when the Locker is closed.
	Open func(l *Locker) (closed func())
	// Acquire is told how each request for a lock ended: Shared, Try, Waited and Err, nil if
	// it was granted.
	Acquire func(ctx context.Context, data TraceData)
	// Wait is told when a request has to wait, once: Shared, and Ahead.
	Wait func(ctx context.Context, data TraceData)
	// Hold is told when a lock is granted: Shared, PID and HandOver.
	Hold func(ctx context.Context, data TraceData)
	// Release is told when a lock was given back: Held, and Err, a *LostError if it was lost
	// before. For a lock that passes on inside the process it perhaps comes only after the Hold
	// of its next holder.
	Release func(ctx context.Context, data TraceData)
	// Loss is told when a lock was lost: Held, and Err, a *LostError.
	Loss func(ctx context.Context, data TraceData)
}

// TraceData is what a Tracer is told: Key, Label and Request always, and else what its function
// names. The others are zero.
type TraceData struct {
	Key   namespace.Key
	Label string
	// Request is the same value in all calls about one request and the lock that it got, and
	// another for each request: to be compared, and as a key of maps.
	Request  any
	Shared   bool
	Try      bool
	HandOver bool          // the lock came from this process, without a round trip
	PID      uint32        // of the server session that holds the lock
	Ahead    int           // requests of this process that are served first
	Waited   time.Duration // from the request to its end
	Held     time.Duration // from the grant to the release or the loss
	Err      error
}

// traceAcquire counts and reports how a request ended.
func (c *core) traceAcquire(ctx context.Context, r *request, err error) {
	l, t := r.lock, &c.config.Tracer
	switch {
	case err == nil:
		c.stats.acquired.Add(1)
		if r.handOver {
			c.stats.handOvers.Add(1)
		}
	case errors.Is(err, ErrTimeout):
		c.stats.timeouts.Add(1)
	}
	if t.Acquire != nil { // who asks for no time pays for no clock
		c.trace(ctx, t.Acquire, TraceData{Key: r.name, Label: l.label, Request: l, Shared: l.Shared(), Try: r.try, Waited: time.Since(r.start), Err: err})
	}
	if err == nil && t.Hold != nil {
		c.trace(ctx, t.Hold, TraceData{Key: l.Key(), Label: l.label, Request: l, Shared: l.Shared(), PID: l.PID(), HandOver: r.handOver})
	}
}

// traceWait reports that a request waits.
func (c *core) traceWait(ctx context.Context, r *request) {
	c.trace(ctx, c.config.Tracer.Wait, TraceData{Key: r.name, Label: r.lock.label, Request: r.lock, Shared: r.lock.Shared(), Ahead: r.ahead})
}

func (c *core) traceRelease(l *Lock, err error) {
	if t := c.config.Tracer.Release; t != nil {
		c.trace(l.parent, t, TraceData{Key: l.Key(), Label: l.label, Request: l, Held: time.Since(l.since), Err: err})
	}
}

// traceLoss counts and reports a lost lock; nobody may be listening to its context.
func (c *core) traceLoss(l *Lock, loss *LostError) {
	c.stats.lost.Add(1)
	c.config.Logger.WarnContext(l.parent, "lock lost", slog.String("key", l.Key().String()),
		slog.Duration("held", loss.Held), slog.Any("error", loss.Cause))
	c.trace(l.parent, c.config.Tracer.Loss, TraceData{Key: l.Key(), Label: l.label, Request: l, Held: loss.Held, Err: loss})
}

// trace calls a function of the tracer. One that panics must not leave a lock, a session
// or a request behind: the panic is logged, and the lock's business goes on.
func (c *core) trace(ctx context.Context, call func(context.Context, TraceData), data TraceData) {
	if call == nil {
		return
	}
	defer c.survive(ctx)
	call(ctx, data)
}

// traced returns a Locker of a new core, of which the tracer has been told.
func (c *core) traced() *Locker {
	l := &Locker{core: c}
	c.traceOpen(l)
	return l
}

func (c *core) traceOpen(l *Locker) {
	if open := c.config.Tracer.Open; open != nil {
		defer c.survive(context.Background())
		c.untrace = open(l)
	}
}

// traceClose reports that the Locker is closed.
func (c *core) traceClose() {
	if c.untrace != nil {
		defer c.survive(context.Background())
		c.untrace()
	}
}

func (c *core) survive(ctx context.Context) {
	if p := recover(); p != nil {
		c.config.Logger.ErrorContext(ctx, "tracer panicked", slog.Any("panic", p))
	}
}
