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

	"github.com/pglatch/pglatch/internal/stream"
	"github.com/pglatch/pglatch/leader/driver"
)

// An Elector takes part in one election for its process. Its methods are safe for
// concurrent use.
//
// One goroutine of its own, from Start until it is stopped, drives it: it alone
// changes the state and calls the callbacks, in the order in which things happen.
// A second one renews leadership while it lasts, so that a slow callback costs
// nothing but time.
type Elector struct {
	config    Config
	callbacks []Callbacks // of the config, in order
	backend   Backend
	waiter    driver.Waiter // nil if the backend is none, and so below
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
	busy     atomic.Int64               // boottime since which the lifecycle goroutine is busy; 0 = it waits
	streams  stream.Set[Event]
	record   record
	lastTerm Term    // by the lifecycle goroutine: of the last term
	problem  trouble // that an audit found; by the goroutine that the backend belongs to

	preferred  atomic.Pointer[string] // the candidate that it is to stand back for; nil = none
	interrupts chan struct{}          // has a value when preferred was set
	standsBack atomic.Bool
	watches    atomic.Bool              // somebody wants to know who leads
	seen       atomic.Pointer[sighting] // nil = it was not looked
	lastLeader string                   // by the lifecycle goroutine: who was reported of last

	mu        sync.Mutex
	lifecycle *lifecycle    // nil before Start
	changed   chan struct{} // closed, and made anew, when what wait waits for may have changed
	working   int           // calls of work that have not returned
}

// A leadership is one as observers see it, from Acquired to Released or Lost;
// a term that was recovered is part of it.
type leadership struct {
	quit     context.Context // ends when a step-down, or a stop, is requested
	stepDown context.CancelCauseFunc
	force    context.Context // ends when nobody wants to wait for work any more
	hurry    context.CancelFunc
	done     chan struct{}
}

// New validates a config and returns an Elector, which does nothing until Start.
func New(config Config) (*Elector, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Elector{config: config, callbacks: config.Callbacks.all(), backend: config.Backend, changed: make(chan struct{}), interrupts: make(chan struct{}, 1), log: labeled(config.Logger, config)}
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

// labeled returns the logger of an election.
func labeled(log *slog.Logger, c Config) *slog.Logger {
	attrs := []any{slog.String("election", c.Name)}
	if b, ok := c.Backend.(driver.Labeled); ok {
		for _, a := range b.LogAttrs() {
			attrs = append(attrs, a)
		}
	}
	return log.With(attrs...)
}

// Start begins to take part in the election and waits for the outcome of the first
// attempt, at most about RenewTimeout. ctx bounds the start only: once Start has
// returned nil the end of ctx changes nothing, and the Elector goes on until Shutdown,
// which every successful Start needs. Work gets ctx's values. Who wants an Elector that ends with
// a context calls Run.
//
// nil says that the node takes part: it leads, another does, or the attempt failed for a
// reason that can pass. An error says that it does not. If no attempt can succeed it
// matches ErrPermanent and ErrGaveUp, and the Elector has stopped; see Config.KeepTrying. If
// LeadOnce is set and the attempt failed it matches ErrGaveUp. If ctx ends first it is ctx's cause, and
// the Elector stops, unless another call started it; Shutdown waits for that.
//
// A second Start is no error and changes nothing, unless the Elector is just
// stopping: then Start waits for the end and begins anew.
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
		return l.err // nil after a Shutdown meanwhile
	}
	if began {
		l.stop()
	}
	return context.Cause(ctx)
}

// begin returns the lifecycle that goes on now, and whether this call began it; nil if ctx has
// ended. The end of bound is a request to stop to one that this call began.
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

// Shutdown stops taking part: if the node leads, the leader's context ends, Run
// waits for its work to return, at most for DrainTimeout and
// renewing meanwhile, and only then is leadership released. It returns nil when
// the Elector is stopped, which it also is before Start. If ctx ends first the
// error matches ErrShutdownTimeout and ctx's cause, and the stop goes on.
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
	return fmt.Errorf("leader: stopping %s, which goes on: %w: %w", e.config.Name, ErrShutdownTimeout, context.Cause(ctx))
}

// StepDown gives leadership up in good order, as Shutdown does, and lets others
// lead: this node stands aside for two seconds, or its retry interval if that is
// longer, and unless LeadOnce is set takes part again. A backend that is a Contest knows
// when nobody else waits to lead: then that is after 0.8 s. It returns nil when leadership
// has been given up or lost, and when the node did not lead. If ctx ends first
// it no longer waits for work: it drops the backend's connection, which frees the
// lock, or releases if the backend cannot be closed, and returns an error that
// matches ErrShutdownTimeout and ctx's cause, RenewTimeout and a second later at
// the latest. A leader's context is no good ctx for it: that ends at once.
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
	case <-dropped.C: // it would be for ever in a callback, which the lifecycle waits for
		what = "the lifecycle hangs, in a callback or in the backend"
	}
	return fmt.Errorf("leader: stepping down from %s: %s: %w: %w", e.config.Name, what, ErrShutdownTimeout, context.Cause(ctx))
}

// Resign asks for a StepDown and does not wait for it, so work may call it. A reason, such as a
// service that cannot start, is reported to OnError and, with LeadOnce, is why the Elector gave
// up. It does nothing if the node does not lead.
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

// WaitForLeadership returns nil when the node leads. The error is ctx's cause if
// ctx ends first, and matches ErrGaveUp if the Elector stops of itself, or
// ErrNotLeader if it is shut down. Before Start it waits.
func (e *Elector) WaitForLeadership(ctx context.Context) error {
	_, err := e.awaitTerm(ctx, nil)
	return err
}

// awaitTerm returns the current term of l, or waits for one. nil = the lifecycle that
// it finds first.
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
		case <-changed: // the end of a lifecycle, too
		}
	}
}

// Logger returns log, or Config.Logger if log is nil, with what each line about this election
// has: its name, and its key if the backend has one.
func (e *Elector) Logger(log *slog.Logger) *slog.Logger {
	return labeled(cmp.Or(log, e.config.Logger), e.config)
}

// Name is the election's name.
func (e *Elector) Name() string { return e.config.Name }

// Identity is this node's identity.
func (e *Elector) Identity() string { return e.config.Identity }

// State returns where the node stands. Leader means that it leads as far as the
// last transition says; IsLeader also looks at the clock.
func (e *Elector) State() State { return State(e.state.Load()) }

// IsLeader reports whether the node leads now. It does no I/O: it is false from
// the moment at which the last good renewal cannot be trusted any more, also if the process was
// stopped or the machine suspended meanwhile.
func (e *Elector) IsLeader() bool {
	t := e.current.Load()
	return t != nil && t.ctx.Err() == nil
}

// Context returns the leader's context. It ends when leadership does: with a cause
// that matches ErrLost or ErrReleased. Its Err looks at the clock; its Done, and
// contexts derived from it, end a moment later, when a timer has run. While the node
// does not lead it returns a context that has ended, with cause ErrNotLeader.
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

// Leader asks the backend who leads. ok is false if nobody does. The error matches
// errors.ErrUnsupported if the backend does not know.
func (e *Elector) Leader(ctx context.Context) (holder Holder, ok bool, err error) {
	inspector, known := e.backend.(driver.Inspector)
	if !known {
		return Holder{}, false, fmt.Errorf("leader: %T does not know who leads: %w", e.backend, errors.ErrUnsupported)
	}
	return inspector.Leader(ctx)
}

// notify wakes everybody who waits for a change of term or work.
func (e *Elector) notify() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notifyLocked()
}

func (e *Elector) notifyLocked() {
	close(e.changed)
	e.changed = make(chan struct{})
}
