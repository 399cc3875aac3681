package leader

import (
	"context"
	"iter"
	"time"
)

// An EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events. Every Acquired is followed by exactly one Released or Lost before the next Acquired or
// Stopped. A Recovered can come between them.
const (
	EventStateChange EventKind = iota + 1
	EventAcquired
	EventRecovered     // leads again after a short loss; nobody led in between
	EventReleased      // given up by Shutdown, StepDown or a service that failed
	EventLost          // taken away
	EventAcquireFailed // somebody else leads, or the attempt failed
	EventError         // Err is the error
	EventStopped
	EventNewLeader // another identity leads than the last one seen; see Callbacks.OnNewLeader
)

var eventNames = [...]string{"", "state_change", "acquired", "recovered", "released", "lost", "acquire_failed", "error", "stopped", "new_leader"}

func (k EventKind) String() string { return eventNames[k] }

// An Event is one change or failure in an election, as this node saw it.
type Event struct {
	Kind     EventKind
	Time     time.Time
	From, To State  // differ in a StateChange only
	Term     Term   // of Acquired, Recovered, Released and Lost
	Holder   Holder // of NewLeader
	Attempt  int    // of AcquireFailed: 1 is the first since the node last led or started
	Err      error  // of Lost, AcquireFailed and Error; of a Released that was not orderly; of a Stopped that gave up
}

// expendable reports whether a reader that is far behind may miss v.
func (v Event) expendable() bool {
	return v.Kind == EventStateChange || v.Kind == EventAcquireFailed || v.Kind == EventError
}

// Events returns the events from this call on, in order, until ctx ends. It also yields events that were sent
// before the end and not yet read. ctx must end, because events are buffered until then. A reader that falls
// far behind misses state changes, failed attempts and errors, the oldest first. It never misses an Acquired,
// Recovered, Released, Lost or Stopped. The sequence can be ranged over once. It continues after Stopped if
// the Elector is started again.
func (e *Elector) Events(ctx context.Context) iter.Seq[Event] { return e.streams.Events(ctx) }
