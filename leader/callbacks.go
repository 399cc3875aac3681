package leader

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/background"
)

// slowCallback is how long a callback may take before a warning names it.
const slowCallback = time.Second

// Callbacks receive the same events as readers of Events. They are called one after the other, and the next
// transition waits for them. They should be quick and must not wait for a transition themselves. A nil field
// is skipped. The method Then combines several callbacks for one event. To receive events only for some
// time, or from a later point on, read Events.
type Callbacks struct {
	// OnAcquired is called when leadership begins. IsLeader is already true, and work has begun.
	OnAcquired func(Term)

	// OnRecovered is called when the node regains leadership within ReconnectGrace, in a new term, if nobody
	// else led in between.
	OnRecovered func(Term)

	// OnReleased is called when the node has given up leadership.
	OnReleased func(Term)

	// OnLost is called when the node has lost leadership, with the reason. The leader's context has already
	// ended.
	OnLost func(Term, error)

	// OnAcquireFailed is called when an attempt did not succeed. nil means that another node leads.
	OnAcquireFailed func(error)

	// OnStateChange is called on every change of state.
	OnStateChange func(from, to State)

	// OnError is called for every error.
	OnError func(error)

	// OnNewLeader is called when LeaderSeen finds a different identity than before; this node's own
	// identity counts too. It is not called for a new term of the same identity, or when nobody leads.
	OnNewLeader func(Holder)

	// OnStopped is called when the Elector has stopped. The error is nil if a stop was requested. Otherwise
	// it matches ErrGaveUp.
	OnStopped func(error)

	then []Callbacks // called after these
}

// Then returns callbacks that, for each event, call those of c and then those of next. A panic in one does
// not skip the others.
func (c Callbacks) Then(next Callbacks) Callbacks {
	c.then = append(slices.Clone(c.then), next)
	return c
}

// all returns c and the callbacks joined by Then, in order.
func (c Callbacks) all() []Callbacks {
	all := []Callbacks{c}
	for _, next := range c.then {
		all = append(all, next.all()...)
	}
	return all
}

// of returns the name of the callback for v and a function that calls it. call is nil if there is no
// callback.
func (c *Callbacks) of(v Event) (name string, call func()) {
	switch v.Kind {
	case EventAcquired:
		return named(c.OnAcquired, func() { c.OnAcquired(v.Term) })
	case EventRecovered:
		return named(c.OnRecovered, func() { c.OnRecovered(v.Term) })
	case EventReleased:
		return named(c.OnReleased, func() { c.OnReleased(v.Term) })
	case EventLost:
		return named(c.OnLost, func() { c.OnLost(v.Term, v.Err) })
	case EventAcquireFailed:
		return named(c.OnAcquireFailed, func() { c.OnAcquireFailed(v.Err) })
	case EventStateChange:
		return named(c.OnStateChange, func() { c.OnStateChange(v.From, v.To) })
	case EventError:
		return named(c.OnError, func() { c.OnError(v.Err) })
	case EventNewLeader:
		return named(c.OnNewLeader, func() { c.OnNewLeader(v.Holder) })
	case EventStopped:
		return named(c.OnStopped, func() { c.OnStopped(v.Err) })
	}
	panic(fmt.Sprintf("BUG: nobody is called for event %d", v.Kind))
}

// named returns the callback's name with call. call is nil if callback is nil.
func named(callback any, call func()) (string, func()) {
	v := reflect.ValueOf(callback)
	if v.IsNil() {
		return "", nil
	}
	if f := runtime.FuncForPC(v.Pointer()); f != nil {
		return f.Name(), call
	}
	return "unknown", call
}

// emit sends v to all streams and calls its callbacks.
func (e *Elector) emit(v Event) {
	v.Time = time.Now()
	e.record.note(v, e.config.Identity)
	e.streams.Send(v)
	var failed []error
	for _, callbacks := range e.callbacks {
		if name, call := callbacks.of(v); call != nil {
			if err := e.call(name, call, v.Kind); err != nil && v.Kind != EventError {
				failed = append(failed, err)
			}
		}
	}
	for _, err := range failed {
		e.emit(Event{Kind: EventError, Err: err})
	}
}

func (e *Elector) call(name string, call func(), kind EventKind) error {
	log := e.log.With(slog.String("callback", name), slog.String("event", kind.String()))
	defer time.AfterFunc(slowCallback, func() { log.Warn("a callback takes long: transitions wait for it") }).Stop()
	err := background.Outlive(func() error { call(); return nil })
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*background.PanicError](err); ok {
		log.Error("a callback panicked", slog.Any("panic", p.Value))
	}
	return fmt.Errorf("leader: %w: %s: %w", ErrPanic, name, err)
}
