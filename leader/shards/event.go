package shards

import (
	"context"
	"iter"
	"time"
)

// An EventKind is what an Event is about.
type EventKind uint8

// The kinds of events. Every Acquired is followed by exactly one Released or Lost of the same
// shard before its next Acquired, or Stopped.
const (
	EventAcquired   EventKind = iota + 1 // its work begins
	EventReleased                        // given up: it moves, the node drains or stops, it is not in the list any more, or its work failed
	EventLost                            // taken away
	EventWorkFailed                      // its work returned an error or panicked
	EventError                           // something went wrong; Err says what
	EventStopped                         // Run ends
)

var eventNames = [...]string{"", "acquired", "released", "lost", "work_failed", "error", "stopped"}

func (k EventKind) String() string { return eventNames[k] }

// An Event is one thing that happened on this node.
type Event struct {
	Kind  EventKind
	Time  time.Time
	Shard Shard // but of Error and Stopped
	Err   error // of Lost, WorkFailed and Error; of Released, if not in order; of Stopped, if Run gave up
}

// expendable reports whether a reader that is far behind can do without v.
func (v Event) expendable() bool { return v.Kind == EventWorkFailed || v.Kind == EventError }

// Events returns the events from this call on, in order, until ctx ends, those from before its
// end included; it must end, since events are kept until then. A reader that falls far behind
// misses errors and failures of work, the oldest first, but never an Acquired, Released, Lost or
// Stopped. The sequence can be ranged over once.
func (n *Node) Events(ctx context.Context) iter.Seq[Event] { return n.streams.Events(ctx) }

// Callbacks are called for what Events gives, one after the other. Claims and releases wait for them, renewals
// and the ends of contexts do not. They should be quick. nil = nobody is called.
type Callbacks struct {
	// OnAcquired is for the begin of an ownership. Work may have begun by then.
	OnAcquired func(Shard)

	// OnReleased is for shards that were given up. Work has returned, or DrainTimeout is over.
	OnReleased func(Shard)

	// OnLost is for shards that were taken away, with the reason. The context has ended before.
	OnLost func(Shard, error)

	// OnWorkFailed is for work that returned an error while its context had not ended, or panicked: the error
	// matches leader.ErrPanic then. Config.Restart says what follows.
	OnWorkFailed func(Shard, error)

	// OnError is for everything else that went wrong.
	OnError func(error)

	// OnStopped is for the end. The error is nil if the end of Run's ctx asked for it.
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
