package leader

import (
	"context"
	"iter"
	"slices"
	"sync"
)

// maxQueued is how many events a stream keeps for a reader that is behind.
const maxQueued = 1024

// streams are the open streams of an Elector.
type streams struct {
	mu  sync.Mutex
	all []*stream
}

// A stream is one reader's queue.
type stream struct {
	mu    sync.Mutex
	queue []Event
	ready chan struct{} // capacity 1
}

// Events returns the events from this call on, in order, until ctx ends, those from before its
// end included; it must end, since events are kept until then. A reader that falls far behind misses
// state changes, failed attempts and errors, the oldest first, but never an
// Acquired, Recovered, Released, Lost or Stopped. The sequence can be ranged over
// once; it goes on after Stopped, for an Elector that is started again.
func (e *Elector) Events(ctx context.Context) iter.Seq[Event] {
	s := &stream{ready: make(chan struct{}, 1)}
	e.streams.add(s)
	stop := context.AfterFunc(ctx, func() { e.streams.remove(s) })
	return func(yield func(Event) bool) {
		defer e.streams.remove(s)
		defer stop()
		for {
			for _, v := range s.drain() {
				if !yield(v) {
					return
				}
			}
			select {
			case <-s.ready:
			case <-ctx.Done():
				for _, v := range s.drain() { // what came before the end
					if !yield(v) {
						return
					}
				}
				return
			}
		}
	}
}

func (ss *streams) add(s *stream) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.all = append(ss.all, s)
}

func (ss *streams) remove(s *stream) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.all = slices.DeleteFunc(ss.all, func(o *stream) bool { return o == s })
}

func (ss *streams) send(v Event) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, s := range ss.all {
		s.push(v)
	}
}

func (s *stream) push(v Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= maxQueued {
		if i := slices.IndexFunc(s.queue, Event.expendable); i >= 0 {
			s.queue = slices.Delete(s.queue, i, i+1)
		}
	}
	s.queue = append(s.queue, v)
	select {
	case s.ready <- struct{}{}:
	default: // it knows
	}
}

func (s *stream) drain() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.queue
	s.queue = nil
	return queue
}

// expendable reports whether a reader that is far behind can do without v.
func (v Event) expendable() bool {
	return v.Kind == EventStateChange || v.Kind == EventAcquireFailed || v.Kind == EventError
}
