package leader

import (
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"time"
)

// slowCallback is how long a callback may take before it is logged by name.
const slowCallback = time.Second

// A hook is one registered callback.
type hook struct {
	kind EventKind
	name string
	call func(Event)
}

// hooks are the registered callbacks, in order.
type hooks struct {
	mu  sync.Mutex
	all []*hook // copied on change
}

// OnAcquired registers callbacks for the begin of leadership. IsLeader is true by
// then, and work has begun.
func (e *Elector) OnAcquired(fns ...func(Term)) (unregister func()) {
	return register(e, EventAcquired, fns, func(fn func(Term), v Event) { fn(v.Term) })
}

// OnRecovered registers callbacks for leadership that was regained within
// ReconnectGrace, in a new term, while nobody else led.
func (e *Elector) OnRecovered(fns ...func(Term)) (unregister func()) {
	return register(e, EventRecovered, fns, func(fn func(Term), v Event) { fn(v.Term) })
}

// OnReleased registers callbacks for leadership that was given up.
func (e *Elector) OnReleased(fns ...func(Term)) (unregister func()) {
	return register(e, EventReleased, fns, func(fn func(Term), v Event) { fn(v.Term) })
}

// OnLost registers callbacks for leadership that was taken away, with the reason.
// The leader's context has ended before.
func (e *Elector) OnLost(fns ...func(Term, error)) (unregister func()) {
	return register(e, EventLost, fns, func(fn func(Term, error), v Event) { fn(v.Term, v.Err) })
}

// OnAcquireFailed registers callbacks for attempts that did not succeed: nil means
// that somebody else leads.
func (e *Elector) OnAcquireFailed(fns ...func(error)) (unregister func()) {
	return register(e, EventAcquireFailed, fns, func(fn func(error), v Event) { fn(v.Err) })
}

// OnStateChange registers callbacks for every change of state.
func (e *Elector) OnStateChange(fns ...func(from, to State)) (unregister func()) {
	return register(e, EventStateChange, fns, func(fn func(from, to State), v Event) { fn(v.From, v.To) })
}

// OnError registers callbacks for everything that went wrong.
func (e *Elector) OnError(fns ...func(error)) (unregister func()) {
	return register(e, EventError, fns, func(fn func(error), v Event) { fn(v.Err) })
}

// OnNewLeader registers callbacks for each change of who leads, as LeaderSeen tells
// it: for another identity than the last one, that of this node too, and not for a new term
// of the same, nor when nobody leads.
func (e *Elector) OnNewLeader(fns ...func(Holder)) (unregister func()) {
	e.watches.Store(true)
	return register(e, EventNewLeader, fns, func(fn func(Holder), v Event) { fn(v.Holder) })
}

// OnStopped registers callbacks for the end. The error is nil if a stop was
// requested, and else matches ErrGaveUp.
func (e *Elector) OnStopped(fns ...func(error)) (unregister func()) {
	return register(e, EventStopped, fns, func(fn func(error), v Event) { fn(v.Err) })
}

func register[F any](e *Elector, kind EventKind, fns []F, call func(F, Event)) func() {
	added := make([]*hook, len(fns))
	for i, fn := range fns {
		added[i] = &hook{kind: kind, name: nameOf(fn), call: func(v Event) { call(fn, v) }}
	}
	h := &e.hooks
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = slices.Concat(h.all, added)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = slices.DeleteFunc(slices.Clone(h.all), func(k *hook) bool { return slices.Contains(added, k) })
	}
}

func nameOf(fn any) string {
	if f := runtime.FuncForPC(reflect.ValueOf(fn).Pointer()); f != nil {
		return f.Name()
	}
	return "unknown"
}

// tell tells an event to all streams and callbacks.
func (e *Elector) tell(v Event) {
	v.Time = time.Now()
	e.streams.send(v)
	e.hooks.mu.Lock()
	all := e.hooks.all
	e.hooks.mu.Unlock()
	for _, h := range all {
		if h.kind != v.Kind {
			continue
		}
		if err := e.call(h, v); err != nil && v.Kind != EventError {
			e.tell(Event{Kind: EventError, Err: err})
		}
	}
}

func (e *Elector) call(h *hook, v Event) error {
	log := e.log.With(slog.String("callback", h.name), slog.String("event", v.Kind.String()))
	defer time.AfterFunc(slowCallback, func() { log.Warn("a callback takes long: transitions wait for it") }).Stop()
	result := make(chan error, 1)
	go func() { // the lifecycle goroutine must survive a runtime.Goexit, as of FailNow
		err := fmt.Errorf("%w: %s: it has ended its goroutine", ErrPanic, h.name)
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("%w: %s: %v", ErrPanic, h.name, r)
				log.Error("a callback panicked", slog.Any("panic", r))
			}
			result <- err
		}()
		h.call(v)
		err = nil
	}()
	return <-result
}
