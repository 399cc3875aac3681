package shards

import (
	"context"
	"iter"
	"time"
)

// An EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events. Every Acquired is followed by exactly one Released or Lost of the same shard before
// its next Acquired, or Stopped.
const (
	EventAcquired   EventKind = iota + 1 // its work begins
	EventReleased                        // given up: it moves, the node drains or stops, it has left the list, or its work failed
	EventLost                            // taken away
	EventWorkFailed                      // its work returned an error or panicked
	EventError                           // Err is the error
	EventStopped                         // Run ends
)

var eventNames = [...]string{"", "acquired", "released", "lost", "work_failed", "error", "stopped"}

func (k EventKind) String() string { return eventNames[k] }

// An Event is one change or failure on this node.
type Event struct {
	Kind  EventKind
	Time  time.Time
	Shard Shard // of all kinds but Error and Stopped
	Err   error // of Lost, WorkFailed and Error; of a Released that was not orderly; of Stopped, if Run gave up
}

// expendable reports whether a reader that is far behind may miss v.
func (v Event) expendable() bool { return v.Kind == EventWorkFailed || v.Kind == EventError }

// Events returns the events from this call on, in order, until ctx ends. It also yields events that were sent
// before the end and not yet read. ctx must end, because events are buffered until then. A reader that falls
// far behind misses errors and failures of work, the oldest first. It never misses an Acquired, Released,
// Lost or Stopped. The sequence can be ranged over once.
func (n *Node) Events(ctx context.Context) iter.Seq[Event] { return n.streams.Events(ctx) }

// Callbacks receive the same events as readers of Events. They are called one after the other. Claims and
// releases wait for them; renewals and the ends of contexts do not. They should be quick. A nil field is
// skipped.
type Callbacks struct {
	// OnAcquired is called when an ownership begins. Work may already have begun.
	OnAcquired func(Shard)

	// OnReleased is called when a shard was given up. Work has returned, or DrainTimeout has
	// passed.
	OnReleased func(Shard)

	// OnLost is called when a shard was taken away, with the reason. The context has already ended.
	OnLost func(Shard, error)

	// OnWorkFailed is called when work panicked, or returned an error while its context had not ended. The
	// error of a panic matches leader.ErrPanic. For the consequences, see Config.Restart.
	OnWorkFailed func(Shard, error)

	// OnError is called for every other error.
	OnError func(error)

	// OnStopped is called when Run ends. The error is nil if Run ended because its ctx did.
	OnStopped func(error)
}

// call calls the callback for an event.
func (c *Callbacks) call(v Event) {
	switch {
	case v.Kind == EventAcquired && c.OnAcquired != nil:
		c.OnAcquired(v.Shard)
	case v.Kind == EventReleased && c.OnReleased != nil:
		c.OnReleased(v.Shard)
	case v.Kind == EventLost && c.OnLost != nil:
		c.OnLost(v.Shard, v.Err)
	case v.Kind == EventWorkFailed && c.OnWorkFailed != nil:
		c.OnWorkFailed(v.Shard, v.Err)
	case v.Kind == EventError && c.OnError != nil:
		c.OnError(v.Err)
	case v.Kind == EventStopped && c.OnStopped != nil:
		c.OnStopped(v.Err)
	}
}
