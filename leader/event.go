package leader

import "time"

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
