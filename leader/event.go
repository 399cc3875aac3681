package leader

import (
	"context"
	"iter"
	"time"
)

// An EventKind is what an Event is about.
type EventKind uint8

// The kinds of events. Every Acquired is followed by exactly one Released or Lost
// before the next Acquired or Stopped; a Recovered can stand between.
const (
	EventStateChange EventKind = iota + 1
	EventAcquired
	EventRecovered     // leads again after a short loss, with nobody in between
	EventReleased      // given up by Shutdown, StepDown or a service that failed
	EventLost          // taken away
	EventAcquireFailed // somebody else leads, or the attempt failed
	EventError         // something went wrong; Err says what
	EventStopped
	EventNewLeader // another identity leads than the last one that was seen; see Callbacks.OnNewLeader
)

var eventNames = [...]string{"", "state_change", "acquired", "recovered", "released", "lost", "acquire_failed", "error", "stopped", "new_leader"}

func (k EventKind) String() string { return eventNames[k] }

// An Event is one thing that happened in an election, as this node saw it.
type Event struct {
	Kind     EventKind
	Time     time.Time
	From, To State  // differ in a StateChange only
	Term     Term   // of Acquired, Recovered, Released and Lost
	Holder   Holder // of NewLeader
	Attempt  int    // of AcquireFailed: 1 is the first since the node last led or started
	Err      error  // of Lost, AcquireFailed and Error; of Released, if not in order; of Stopped, if given up
}

// expendable reports whether a reader that is far behind can do without v.
func (v Event) expendable() bool {
	return v.Kind == EventStateChange || v.Kind == EventAcquireFailed || v.Kind == EventError
}

// Events returns the events from this call on, in order, until ctx ends, those from before its
// end included; it must end, since events are kept until then. A reader that falls far behind misses
// state changes, failed attempts and errors, the oldest first, but never an
// Acquired, Recovered, Released, Lost or Stopped. The sequence can be ranged over
// once; it goes on after Stopped, for an Elector that is started again.
func (e *Elector) Events(ctx context.Context) iter.Seq[Event] { return e.streams.Events(ctx) }
