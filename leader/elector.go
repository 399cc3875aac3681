package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/internal/stream"
	"github.com/pglatch/pglatch/leader/driver"
)

// An Elector is one node of one election. Its methods are safe for concurrent use.
//
// The Elector's own goroutine drives it from Start until it is stopped. Only that goroutine changes the state
// and calls the callbacks, in the order of the events. A second goroutine renews leadership while it lasts,
// so a slow callback delays transitions but does not end leadership.
type Elector struct {
	config    Config
	comeback  renew.Comeback
	callbacks []Callbacks // from the config, in order
	backend   Backend
	waiter    driver.Waiter // nil if the backend does not implement it; likewise below
	losses    driver.LossNotifier
	auditor   driver.Auditor
	termer    driver.Termer
	clean     driver.Successor
	binder    driver.Binder
	contest   driver.Contest
	closer    io.Closer
	shows     driver.Introspector
	log       *slog.Logger                                // with the election's name and key
	inspect   func(context.Context) (Holder, bool, error) // of an Observer, or an Inspector

	state    atomic.Uint32
	current  atomic.Pointer[activeTerm] // nil while not leading
	busy     atomic.Int64               // boottime since which the lifecycle goroutine has been busy; 0 = it is waiting
	streams  stream.Set[Event]
	record   record
	lastTerm Term    // the last term; owned by the lifecycle goroutine
	problem  trouble // found by the last audit; used by the goroutine that owns the backend

	preferred  atomic.Pointer[string] // the candidate to stand back for; nil = none
	interrupts chan struct{}          // receives a value when preferred is set
	standsBack atomic.Bool
	watches    atomic.Bool              // a caller or callback wants to know the leader
	seen       atomic.Pointer[sighting] // nil = this node has not looked yet
	lastLeader string                   // the leader reported last; owned by the lifecycle goroutine

	mu        sync.Mutex
	lifecycle *lifecycle    // nil before Start
	changed   chan struct{} // closed and replaced when the term, the work or the lifecycle may have changed
	working   int           // calls of work that have not returned
}

// A leadership lasts from Acquired to Released or Lost, as observers see it. A recovered term is part of it.
type leadership struct {
	quit     context.Context // ends when a step-down, or a stop, is requested
	stepDown context.CancelCauseFunc
	force    context.Context // ends when no caller waits for work any more
	hurry    context.CancelFunc
	done     chan struct{}
}

// New validates config and returns an Elector, which does nothing until Start.
func New(config Config) (*Elector, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Elector{config: config, comeback: config.times().Comeback(), callbacks: config.Callbacks.all(), backend: config.Backend, changed: make(chan struct{}), interrupts: make(chan struct{}, 1), log: labeled(config.Logger, config)}
	e.streams.Expendable = Event.expendable
	e.watches.Store(slices.ContainsFunc(e.callbacks, func(c Callbacks) bool { return c.OnNewLeader != nil }))
	e.waiter, _ = e.backend.(driver.Waiter)
	e.losses, _ = e.backend.(driver.LossNotifier)
	e.auditor, _ = e.backend.(driver.Auditor)
	e.termer, _ = e.backend.(driver.Termer)
	e.clean, _ = e.backend.(driver.Successor)
	e.binder, _ = e.backend.(driver.Binder)
	e.contest, _ = e.backend.(driver.Contest)
	e.closer, _ = e.backend.(io.Closer)
	e.shows, _ = e.backend.(driver.Introspector)
	switch b := e.backend.(type) {
	case driver.Observer:
		e.inspect = b.Observe
	case driver.Inspector:
		e.inspect = b.Leader
	}
	return e, nil
}

// labeled returns log with the attributes of the election.
func labeled(log *slog.Logger, c Config) *slog.Logger {
	attrs := []any{slog.String("election", c.Name)}
	if b, ok := c.Backend.(driver.Labeled); ok {
		for _, a := range b.LogAttrs() {
			attrs = append(attrs, a)
		}
	}
	return log.With(attrs...)
}

// Start makes the node take part in the election, and waits for the outcome of the first attempt, for about
// RenewTimeout at most. ctx bounds only the start. Once Start has returned nil, the end of ctx has no effect,
// and the Elector runs until Shutdown. Every successful Start needs a Shutdown. Work gets ctx's values. To
// tie an Elector to a context, call Run.
//
// nil means that the node takes part: it leads, another node leads, or the attempt failed for a transient
// reason. An error means that it does not take part:
//
//   - If no attempt can succeed, the error matches ErrPermanent and ErrGaveUp, and the Elector has stopped;
//     see Config.KeepTrying.
//   - If LeadOnce is set and the attempt failed, the error matches ErrGaveUp.
//   - If ctx ends first, the error is ctx's cause. The Elector stops, unless another call started it.
//     Shutdown waits until it has stopped.
//
// A second Start is not an error and changes nothing, with one exception. If the Elector is stopping, Start
// waits for the end and starts it again.
func (e *Elector) Start(ctx context.Context) error {
	l, began := e.begin(ctx, context.WithoutCancel(ctx))
	if l == nil {
		return context.Cause(ctx)
	}
	select {
	case <-l.decided:
	case <-l.done:
	case <-ctx.Done():
	}
	switch {
	case l.isDecided():
		return nil
	case l.over():
		return l.err // nil after a concurrent Shutdown
	}
	if began {
		l.stop()
	}
	return context.Cause(ctx)
}

// begin returns the present lifecycle, and whether this call began it. It returns nil if ctx has ended. The
// end of bound requests a stop of a lifecycle that this call began.
func (e *Elector) begin(ctx, bound context.Context) (l *lifecycle, began bool) {
	for ctx.Err() == nil {
		e.mu.Lock()
		l = e.lifecycle
		if l == nil || l.over() {
			l = newLifecycle(bound)
			e.lifecycle = l
			go e.live(l)
			e.mu.Unlock()
			return l, true
		}
		e.mu.Unlock()
		if l.quit.Err() == nil {
			return l, false
		}
		select {
		case <-l.done:
		case <-ctx.Done():
		}
	}
	return nil, false
}

// Shutdown stops taking part in the election. If the node leads, the order is:
//
//   - The leader's context ends.
//   - Run waits for its work to return, at most for DrainTimeout. The node keeps renewing meanwhile.
//   - Leadership is released.
//
// Shutdown returns nil when the Elector is stopped, or if it was never started. If ctx ends first, the
// error matches ctx's cause, and the stop continues.
func (e *Elector) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	l := e.lifecycle
	e.mu.Unlock()
	if l == nil {
		return nil
	}
	l.stop()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
	}
	if l.over() {
		return nil
	}
	return fmt.Errorf("leader: stopping %s, which continues: %w", e.config.Name, context.Cause(ctx))
}

// StepDown gives up leadership in good order, as Shutdown does, and lets others lead. This node then makes
// no attempt for two seconds, or for its retry interval if that is longer. With a backend that is a Contest,
// it waits only 0.8 s if no other node waits to lead. Then it takes part again, unless LeadOnce is set.
//
// StepDown returns nil when leadership has been given up or lost, and when the node did not lead. If ctx ends
// first, it stops waiting for work. It then closes the backend's connection, which frees the lock. If the
// backend cannot be closed, StepDown calls its Release instead. The error matches ctx's cause, and is
// returned at most RenewTimeout and a second after ctx has ended. Do not pass the leader's context: it ends
// as soon as the step-down begins.
func (e *Elector) StepDown(ctx context.Context) error {
	e.mu.Lock()
	var r *leadership
	if e.lifecycle != nil {
		r = e.lifecycle.leadership
	}
	e.mu.Unlock()
	if r == nil {
		return nil
	}
	r.stepDown(nil)
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-r.done:
		return nil
	default:
	}
	r.hurry()
	what := "work did not end, and leadership was dropped"
	dropped := time.NewTimer(e.config.RenewTimeout + slowCallback)
	defer dropped.Stop()
	select {
	case <-r.done:
	case <-dropped.C: // inside a callback the wait would never end: the lifecycle waits for the callback
		what = "the lifecycle hangs, in a callback or in the backend"
	}
	return fmt.Errorf("leader: stepping down from %s: %s: %w", e.config.Name, what, context.Cause(ctx))
}

// Resign requests a StepDown and does not wait for it, so work may call it. OnError receives the reason, such
// as a service that cannot start. With LeadOnce, the Elector then stops, and its ErrGaveUp error includes the
// reason. Resign does nothing if the node does not lead.
func (e *Elector) Resign(reason error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lifecycle == nil || e.lifecycle.leadership == nil {
		return
	}
	if reason != nil {
		reason = &resignation{reason}
	}
	e.lifecycle.leadership.stepDown(reason)
}

// A resignation is the cause of a step-down that has a reason.
type resignation struct{ reason error }

func (r *resignation) Error() string { return r.reason.Error() }

// WaitForLeadership returns nil when the node leads. Before Start it waits. The error depends on the cause:
//
//   - ctx ends first: ctx's cause
//   - the Elector stops on its own: an error that matches ErrGaveUp
//   - the Elector is shut down: an error that matches ErrNotLeader
func (e *Elector) WaitForLeadership(ctx context.Context) error {
	_, err := e.awaitTerm(ctx, nil)
	return err
}

// awaitTerm returns the current term of l, or waits for one. nil = the first lifecycle that it finds.
func (e *Elector) awaitTerm(ctx context.Context, l *lifecycle) (*activeTerm, error) {
	for {
		e.mu.Lock()
		changed := e.changed
		if l == nil {
			l = e.lifecycle // still nil before Start
		}
		e.mu.Unlock()
		if l != nil && l.over() {
			if l.err != nil {
				return nil, l.err
			}
			return nil, fmt.Errorf("leader: %s was stopped: %w", e.config.Name, ErrNotLeader)
		}
		if t := e.current.Load(); t != nil && t.ctx.Err() == nil {
			return t, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-changed: // the end of a lifecycle closes it too
		}
	}
}

// Logger returns log (or Config.Logger if log is nil) with the attributes that each line about this
// election has: its name, and its key if the backend has one.
func (e *Elector) Logger(log *slog.Logger) *slog.Logger {
	return labeled(background.Logger(cmp.Or(log, e.config.Logger)), e.config)
}

// Config returns the config with its defaults filled in, such as this node's identity.
func (e *Elector) Config() Config { return e.config }

// State returns the node's state. Leader means that the node led at the last transition; IsLeader also checks
// the clock.
func (e *Elector) State() State { return State(e.state.Load()) }

// IsLeader reports whether the node leads now, without I/O. It is false as soon as the last successful
// renewal can no longer be trusted, even if the process was stopped or the machine suspended in the
// meantime.
func (e *Elector) IsLeader() bool {
	t := e.current.Load()
	return t != nil && t.ctx.Err() == nil
}

// Context returns the leader's context. It ends when leadership does, with a cause that matches ErrLost or
// ErrReleased. Its Err and Done check the clock. Contexts made from it by WithCancel or WithTimeout end a
// moment later, when a timer has run. While the node does not lead, Context returns a context that has ended,
// with cause ErrNotLeader.
func (e *Elector) Context() context.Context {
	if t := e.current.Load(); t != nil {
		return t.ctx
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrNotLeader)
	return ctx
}

// Term returns the term in which the node leads, or the zero Term.
func (e *Elector) Term() Term {
	if t := e.current.Load(); t != nil && t.ctx.Err() == nil {
		return t.term
	}
	return Term{}
}

// Leader asks the backend for the leader. ok is false if nobody leads. If the backend cannot tell, the error
// matches errors.ErrUnsupported.
func (e *Elector) Leader(ctx context.Context) (holder Holder, ok bool, err error) {
	inspector, known := e.backend.(driver.Inspector)
	if !known {
		return Holder{}, false, fmt.Errorf("leader: %T does not know who leads: %w", e.backend, errors.ErrUnsupported)
	}
	return inspector.Leader(ctx)
}

// notify wakes all goroutines that wait for a change of term or work.
func (e *Elector) notify() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notifyLocked()
}

func (e *Elector) notifyLocked() {
	close(e.changed)
	e.changed = make(chan struct{})
}
