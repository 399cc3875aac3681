// Package trace writes the run of a test to files: what its processes did and what they received, one JSON object in each
// line. Package check in spec replays such runs. Nothing is written unless a test asks for it: a nil *Writer does nothing.
package trace

import (
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

// A Kind says what an Event is about.
type Kind string

// The kinds of events. An event of one of the first group names a run.
const (
	Run Kind = "run" // the first event of a file: Key is what is replayed

	State         Kind = "state"          // of an elector: From and To
	Acquired      Kind = "acquired"       // a leadership, shard or lock
	Recovered     Kind = "recovered"      // a leadership
	Released      Kind = "released"       // a leadership, shard or lock: it was held until then
	Lost          Kind = "lost"           // the process received the loss of a leadership, shard or lock
	AcquireFailed Kind = "acquire_failed" // an attempt of an elector
	Stopped       Kind = "stopped"        // an elector, or a node of shards
	Works         Kind = "works"          // work under a term began
	Rests         Kind = "rests"          // and ended
	Commit        Kind = "commit"         // of a transaction of Term, which should be guarded

	Ask     Kind = "ask"     // a request for a lock
	Refused Kind = "refused" // that request ended without the lock
	Release Kind = "release" // a release of a lock began

	Sent Kind = "sent" // a message of an entity, with its number: its sender received that it is committed
	Turn Kind = "turn" // a turn of an entity began: Term is its token
	Dead Kind = "dead" // a message became a dead letter. Commit has the messages that a turn committed

	LeaseAcquire Kind = "lease_acquire" // calls of a lease store, each with its answer
	LeaseRenew   Kind = "lease_renew"
	LeaseRelease Kind = "lease_release"

	Error   Kind = "error"   // a process reported an error
	Fault   Kind = "fault"   // what the test did to Who; an empty Who is everybody. To is Begins or Ends
	Verdict Kind = "verdict" // what the tools of the person on call said: its name is in Text, its words in Words
)

// What Event.To is of a Fault.
const (
	Begins = "begins"
	Ends   = "ends"
)

// AnyNumber are the slots of readers: any number of them may hold a lock at once.
const AnyNumber = 1 << 30

// An Event is one thing that a process did or received. A field that has no meaning for its kind is empty.
type Event struct {
	Process string `json:"process"`
	Seq     uint64 `json:"seq"`             // 1 is the process's first event
	Wall    int64  `json:"wall"`            // nanoseconds since 1970
	Boot    int64  `json:"boot"`            // nanoseconds on a clock that all processes of a machine share
	Asked   int64  `json:"asked,omitempty"` // of a call: when it began, on that clock; Boot is when it ended
	Kind    Kind   `json:"kind"`

	Key   string   `json:"key,omitempty"`  // the election, shard, lock, entity or name of a lease
	Who   string   `json:"who,omitempty"`  // the request, or the holder of a lease, or the process that a fault hits
	Term  uint64   `json:"term,omitempty"` // as driver.Term.Uint64
	From  string   `json:"from,omitempty"`
	To    string   `json:"to,omitempty"`
	Text  string   `json:"text,omitempty"` // an error, or the name of a fault
	Words []string `json:"words,omitempty"`

	Slots  int   `json:"slots,omitempty"`  // of a lock: how many may hold it at once; 0 = one, and nobody beside it
	Number int64 `json:"number,omitempty"` // of a message, whose ID is in Text

	Grace    bool `json:"grace,omitempty"`     // of an elector: it has a ReconnectGrace
	LeadOnce bool `json:"lead_once,omitempty"` // of an elector

	Lease *Call `json:"lease,omitempty"`
}

// Time returns the event's time, as a duration since the machine started.
func (e Event) Time() time.Duration { return time.Duration(e.Boot) }

// Now is the shared clock, for Event.Asked.
func Now() int64 { return int64(boottime.Now()) }
