package advisory

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/namespace"
)

// A Tracer has functions that are called when something happens to a lock. nil functions are not
// called. If a function panics, the panic is logged and has no other effect. If a function ends its
// goroutine, as FailNow of a test does, the reported call does not return. If that call is an
// acquisition, no lock stays held.
//
// The functions run on the goroutine where the event happens, without a mutex held. They must be
// quick and safe for concurrent use. Loss, and Release after it, run on a goroutine of their own,
// after all holders of the lost connection have been notified. A slow function delays other such
// reports, but no lock. If 65,536 reports are waiting, further ones are dropped and counted in
// Stats.Unreported, and the Logger receives their number. A function can call every method of the
// Locker. Close waits for all reports, unless one of them calls Close.
type Tracer struct {
	// Open receives the Locker that the Tracer belongs to. From then on the Tracer may call its
	// Stats and Held. If Open returns a function, it is called when the Locker is closed.
	Open func(l *Locker) (closed func())
	// Wait is called once for each request that has to wait. For AcquireAll, Wait is called once
	// for each key that the call has to wait for.
	Wait func(ctx context.Context, data WaitData)
	// Acquire is called when a request ends, with the lock or with an error.
	Acquire func(ctx context.Context, data AcquireData)
	// Release is called after a lock was released. If the lock was lost before, Release is called
	// after Loss. If the lock is handed off inside the process, Release may come after the
	// Acquire of the next holder.
	Release func(ctx context.Context, data ReleaseData)
	// Loss is called after a lock was lost.
	Loss func(ctx context.Context, data LossData)
}

// WaitData describes a request that waits.
type WaitData struct {
	Key   namespace.Key // the semaphore's, for AcquireSlot
	Label string
	// Request identifies a request and the lock that it got. It has the same value in all calls about
	// one request, and different values for different requests. Compare it, or use it as a map key.
	Request any
	Shared  bool
	Ahead   int // requests of this process that are served first
}

// AcquireData describes how a request ended.
type AcquireData struct {
	Key      namespace.Key // the lock's; the semaphore's if AcquireSlot got no lock
	Label    string
	Request  any // as in WaitData
	Shared   bool
	Try      bool
	Waited   time.Duration // from the request to its end
	HandOver bool          // the lock came from this process, without a round trip
	PID      uint32        // of the server session that holds the lock; 0 without one
	Err      error         // nil = the lock was granted
}

// ReleaseData describes a lock that was released.
type ReleaseData struct {
	Key     namespace.Key
	Label   string
	Request any           // as in WaitData
	Held    time.Duration // from the grant to the release
	Err     error         // a *LostError if the lock was lost before, else nil
}

// LossData describes a lock that was lost, and why.
type LossData struct {
	Key     namespace.Key
	Label   string
	Request any           // as in WaitData
	Held    time.Duration // from the grant to the loss
	// Reason is the reason in one word, for metrics and alerts:
	//
	//   - "terminated": pg_terminate_backend, or a shutdown of the server
	//   - "idle_timeout": the server received nothing for SessionTTL
	//   - "crash": the server crashed
	//   - "silent": the server did not answer before the deadline
	//   - "not_held": the session was alive but did not have the lock, as behind a pooler
	//   - "closed": Locker.Close
	//   - "connection": the connection ended for another reason, or for no known reason
	Reason string
	Err    *LostError // never nil
}

// traceAcquire counts and reports how a request ended.
func (c *core) traceAcquire(ctx context.Context, r *request, err error) {
	l, t := r.lock, &c.config.Tracer
	switch {
	case err == nil:
		c.stats.acquired.Add(1)
		if r.HandOver() {
			c.stats.handOvers.Add(1)
		}
	case errors.Is(err, ErrTimeout):
		c.stats.timeouts.Add(1)
	}
	if t.Acquire == nil { // without a tracer, skip reading the clock
		return
	}
	data := AcquireData{Key: r.name, Label: l.label, Request: l, Shared: l.Shared(), Try: r.Try, Waited: r.waited(), Err: err}
	if err == nil {
		data.Key, data.PID, data.HandOver = l.Key(), l.PID(), r.HandOver()
	}
	trace(ctx, c, t.Acquire, data)
}

// traceWait reports that a request waits behind so many others.
func (c *core) traceWait(r *request, ahead int) {
	l := r.lock
	trace(l.parent, c, c.config.Tracer.Wait, WaitData{Key: r.name, Label: l.label, Request: l, Shared: l.Shared(), Ahead: ahead})
}

// traceRelease reports that a lock was given back, after its loss if it was lost.
func (c *core) traceRelease(l *Lock, loss *LostError) {
	if c.config.Tracer.Release == nil {
		return
	}
	r := report{lock: l, released: true, held: time.Since(l.since()), loss: loss}
	if loss != nil {
		c.report(r)
		return
	}
	c.traceEnd(r)
}

// traceEnd makes a report. It also logs a loss, because nobody may be watching the lost lock's context.
func (c *core) traceEnd(r report) {
	l, t := r.lock, &c.config.Tracer
	if r.line != nil {
		c.tell(r.line)
		return
	}
	if r.released {
		data := ReleaseData{Key: l.Key(), Label: l.label, Request: l, Held: r.held}
		if r.loss != nil {
			data.Err = r.loss
		}
		trace(l.parent, c, t.Release, data)
		return
	}
	c.tell(func(log *slog.Logger) {
		log.WarnContext(l.parent, "lock lost", slog.String("key", l.Key().String()), slog.Duration("held", r.held), slog.Any("error", r.loss.Cause))
	})
	trace(l.parent, c, t.Loss, LossData{
		Key: l.Key(), Label: l.label, Request: l, Held: r.held, Reason: reasonOf(r.loss.Cause), Err: r.loss,
	})
}

// traceDropped logs how many reports were dropped.
func (c *core) traceDropped(n int64) {
	if n > 0 {
		c.tell(func(log *slog.Logger) {
			log.Warn("losses and releases were not reported: the Logger or the Tracer is too slow", slog.Int64("reports", n))
		})
	}
}

// trace calls a function of the tracer. A panic in it must not leave a lock, a session or a request
// behind: it is logged, and the operation goes on.
func trace[D any](ctx context.Context, c *core, call func(context.Context, D), data D) {
	if call == nil {
		return
	}
	c.outlive(ctx, func() { call(ctx, data) })
}

// traced returns a Locker of a new core, after the tracer has received it.
func (c *core) traced() *Locker {
	l := &Locker{core: c}
	open := c.config.Tracer.Open
	if open == nil {
		return l
	}
	returns := false
	defer func() {
		if !returns {
			l.Close()
		}
	}()
	c.outlive(context.Background(), func() { c.untrace = open(l) })
	returns = true
	return l
}

// traceClose reports that the Locker is closed.
func (c *core) traceClose() {
	if c.untrace != nil {
		c.outlive(context.Background(), c.untrace)
	}
}

// outlive calls a function of the program on its caller's goroutine. A panic is logged. The function can also end the
// goroutine, so do not call outlive under mu, or without a defer that clears away what would be left behind.
func (c *core) outlive(ctx context.Context, f func()) {
	failed := func(err error) {
		c.tell(func(log *slog.Logger) { log.ErrorContext(ctx, "tracer panicked", slog.Any("panic", err)) })
	}
	if err := background.Call(func() error { f(); return nil }, failed); err != nil {
		failed(err)
	}
}

// tell calls the Logger on its caller's goroutine, as outlive does: a report that the Logger makes may close the Locker.
// A panic of the Logger is dropped, because nobody else can receive it.
func (c *core) tell(line func(*slog.Logger)) {
	_ = background.Call(func() error { line(c.config.Logger); return nil }, func(error) {})
}
