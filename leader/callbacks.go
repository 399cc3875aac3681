package leader

import (
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"time"
)

// slowCallback is how long a callback may take before it is logged by name.
const slowCallback = time.Second

// Callbacks are called for what Events gives, one after the other, and the next transition
// waits for them: they should be quick, and must not wait for a transition themselves. nil =
// nobody is called. Several for one event are joined by Then. Who wants to know only for a time, or comes later, reads Events.
type Callbacks struct {
	// OnAcquired is for the begin of leadership. IsLeader is true by then, and work has begun.
	OnAcquired func(Term)

	// OnRecovered is for leadership that was regained within ReconnectGrace, in a new term,
	// while nobody else led.
	OnRecovered func(Term)

	// OnReleased is for leadership that was given up.
	OnReleased func(Term)

	// OnLost is for leadership that was taken away, with the reason. The leader's context has
	// ended before.
	OnLost func(Term, error)

	// OnAcquireFailed is for attempts that did not succeed: nil means that somebody else leads.
	OnAcquireFailed func(error)

	// OnStateChange is for every change of state.
	OnStateChange func(from, to State)

	// OnError is for everything that went wrong.
	OnError func(error)

	// OnNewLeader is for each change of who leads, as LeaderSeen sees it: for another identity
	// than the last one, that of this node too, and not for a new term of the same, nor when
	// nobody leads.
	OnNewLeader func(Holder)

	// OnStopped is for the end. The error is nil if a stop was requested, and else matches
	// ErrGaveUp.
	OnStopped func(error)

	then []Callbacks // that are called after these
}

// Then returns callbacks that call those of c, and then those of next, for each event: in this order, each of them also if
// one before it has panicked.
func (c Callbacks) Then(next Callbacks) Callbacks {
	c.then = append(slices.Clone(c.then), next)
	return c
}

// all returns c and what comes after it, in order.
func (c Callbacks) all() []Callbacks {
	all := []Callbacks{c}
	for _, next := range c.then {
		all = append(all, next.all()...)
	}
	return all
}

// of returns the callback for an event, as its name and what calls it, which is nil if there is
// none.
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

// named adds the name of a callback to what calls it.
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

// emit gives an event to all streams, and to its callbacks.
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
	result := make(chan error, 1)
	go func() { // the lifecycle goroutine must survive a runtime.Goexit, as of FailNow
		err := fmt.Errorf("leader: %w: %s: it has ended its goroutine", ErrPanic, name)
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("leader: %w: %s: %v", ErrPanic, name, r)
				log.Error("a callback panicked", slog.Any("panic", r))
			}
			result <- err
		}()
		call()
		err = nil
	}()
	return <-result
}
