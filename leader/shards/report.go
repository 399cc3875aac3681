package shards

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/leader"
)

// noteLocked stores an event until the driving goroutine reports it.
func (n *Node) noteLocked(v Event) {
	v.Time = time.Now()
	n.events = append(n.events, v)
	switch v.Kind {
	case EventAcquired:
		n.stats.Acquired++
	case EventReleased:
		n.stats.Released++
	case EventLost:
		n.stats.Lost++
	case EventWorkFailed:
		n.stats.Failures++
	case EventError, EventStopped:
	}
}

func (n *Node) note(v Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noteLocked(v)
	notify(n.wake)
}

// failed records a failed call of the backend.
func (n *Node) failed(doing string, err error) {
	n.mu.Lock()
	n.stats.Errors++
	n.mu.Unlock()
	n.note(Event{Kind: EventError, Err: &failure{doing, err}})
}

// A failure is a backend's error as the Node reports it. It matches leader.ErrConnection, and its text begins
// with the cause.
type failure struct {
	doing string
	err   error
}

func (f *failure) Error() string {
	return fmt.Sprintf("%s: %s", f.doing, strings.TrimPrefix(f.err.Error(), "shards: "))
}

func (f *failure) Is(target error) bool { return target == leader.ErrConnection }

func (f *failure) Unwrap() error { return f.err }

// report sends the stored events to all readers, callbacks and the log.
func (n *Node) report() {
	n.mu.Lock()
	events := n.events
	n.events = nil
	n.mu.Unlock()
	for _, v := range events {
		n.logEvent(v)
		n.streams.Send(v)
		err := panicked(background.Outlive(func() error { n.config.Callbacks.call(v); return nil }))
		if err == nil {
			continue
		}
		n.log.Error("a callback panicked", slog.String("event", v.Kind.String()), slog.Any("error", err))
		if v.Kind != EventError {
			n.note(Event{Kind: EventError, Err: fmt.Errorf("shards: a callback for %v: %w", v.Kind, err)})
		}
	}
}

func (n *Node) logEvent(v Event) {
	log := n.log
	if v.Shard.Name != "" {
		log = log.With(slog.String("shard", v.Shard.Name), slog.String("term", v.Shard.Term.String()))
	}
	if v.Err != nil {
		log = log.With(slog.Any("error", v.Err))
	}
	switch {
	case v.Kind == EventWorkFailed && errors.Is(v.Err, leader.ErrPanic):
		log.Error("work panicked")
	case v.Kind == EventWorkFailed:
		log.Warn("work failed")
	case v.Kind == EventLost:
		log.Warn("a shard was lost")
	case v.Kind == EventError:
		log.Warn("something went wrong")
	case v.Kind == EventReleased && v.Err != nil:
		log.Warn("a shard was given away")
	default:
		log.Debug("ownership", slog.String("event", v.Kind.String()))
	}
}
