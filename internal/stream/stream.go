// Package stream gives what happens to any number of readers, who come and go.
package stream

import (
	"context"
	"iter"
	"slices"
	"sync"
)

// maxQueued is how many events a stream keeps for a reader that is behind.
const maxQueued = 1024

// A Set is the open streams of events of one source. Its methods are safe for concurrent use.
type Set[E any] struct {
	// Expendable reports whether a reader that is far behind can do without an event. Set it first.
	Expendable func(E) bool

	mu  sync.Mutex
	all []*stream[E]
}

// A stream is one reader's queue.
type stream[E any] struct {
	expendable func(E) bool

	mu    sync.Mutex
	queue []E
	ready chan struct{} // capacity 1
}

// Events returns the events from this call on, in order, until ctx ends, those from before its
// end included. A reader that falls far behind misses expendable ones, the oldest first. The
// sequence can be ranged over once.
func (ss *Set[E]) Events(ctx context.Context) iter.Seq[E] {
	s := &stream[E]{expendable: ss.Expendable, ready: make(chan struct{}, 1)}
	ss.add(s)
	stop := context.AfterFunc(ctx, func() { ss.remove(s) })
	return func(yield func(E) bool) {
		defer ss.remove(s)
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

func (ss *Set[E]) add(s *stream[E]) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.all = append(ss.all, s)
}

func (ss *Set[E]) remove(s *stream[E]) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.all = slices.DeleteFunc(ss.all, func(o *stream[E]) bool { return o == s })
}

// Send gives an event to all who read.
func (ss *Set[E]) Send(v E) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, s := range ss.all {
		s.push(v)
	}
}

func (s *stream[E]) push(v E) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= maxQueued {
		if i := slices.IndexFunc(s.queue, s.expendable); i >= 0 {
			s.queue = slices.Delete(s.queue, i, i+1)
		}
	}
	s.queue = append(s.queue, v)
	select {
	case s.ready <- struct{}{}:
	default: // it knows
	}
}

func (s *stream[E]) drain() []E {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.queue
	s.queue = nil
	return queue
}
