package introspect

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pglatch/pglatch/namespace"
)

// An Answer is what one process says of itself, as of the moment in which it was asked. All
// times in it are ages, so that clocks need not agree.
type Answer struct {
	Process   Process    `json:"process"`
	Locks     []Lock     `json:"locks,omitempty"`     // that it holds: with waiters first, then the oldest
	Waits     []Wait     `json:"waits,omitempty"`     // the oldest first
	Elections []Election `json:"elections,omitempty"` // that it takes part in
	Groups    []Group    `json:"groups,omitempty"`    // of shards, of which it owns some
	// AllLocks and AllWaits count what matched the question, also what is beyond its limit.
	AllLocks int `json:"all_locks"`
	AllWaits int `json:"all_waits"`

	// Session is the server session that answered: its pid in pg_stat_activity, which
	// PostgreSQL tells.
	Session uint32 `json:"session"`
	// Took is the time from the question to the last part of the answer.
	Took time.Duration `json:"took_ns"`
}

// A Process is one that answers.
type Process struct {
	ID      string        `json:"id"` // random, as long as it runs
	Service string        `json:"service"`
	Version string        `json:"version,omitempty"`
	Host    string        `json:"host"`
	PID     int           `json:"pid"` // of its operating system
	Age     time.Duration `json:"-"`   // "age" in JSON
	// Clock is the time of its clock when it answered.
	Clock time.Time `json:"clock"`
}

// processJSON is a Process in JSON. Commands show it in their documents, in which times are in seconds.
type processJSON struct {
	process
	Age float64 `json:"age"`
}

type process Process

// maxAge is the greatest age that is believed: greater ones may be no time.Duration.
const maxAge = time.Duration(math.MaxInt64 / 2)

// MarshalJSON implements json.Marshaler.
func (p Process) MarshalJSON() ([]byte, error) {
	return json.Marshal(processJSON{process(p), p.Age.Seconds()})
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Process) UnmarshalJSON(text []byte) error {
	var j processJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	if math.Abs(j.Age) > maxAge.Seconds() {
		return fmt.Errorf("introspect: an age of %g s", j.Age)
	}
	*p = Process(j.process)
	p.Age = time.Duration(math.Round(j.Age * float64(time.Second)))
	return nil
}

// A Lock is one that a process holds.
type Lock struct {
	Key       string        `json:"key"` // "order/42"; "order/…" if entities are hidden; "1:100" or "@12345" without a namespace
	Tag       namespace.Tag `json:"tag"`
	Semaphore string        `json:"semaphore,omitempty"` // of which it is a slot
	Slots     int           `json:"slots,omitempty"`     // that this has
	Shared    bool          `json:"shared,omitempty"`
	Age       time.Duration `json:"age_ns"` // since the grant
	Label     string        `json:"label,omitempty"`
	Group     string        `json:"group,omitempty"`      // of shards, of which it is one
	Session   uint32        `json:"session"`              // that it lives on: the pid in pg_locks
	Beside    int           `json:"beside,omitempty"`     // other keys on the session, which end with it
	Doubtful  bool          `json:"doubtful,omitempty"`   // the server has not answered in time
	Asked     bool          `json:"asked,omitempty"`      // its release was asked for
	HandOvers int64         `json:"hand_overs,omitempty"` // of the key inside the process since it was granted to it

	Waiters    int           `json:"waiters,omitempty"`        // of this process, for the key
	OldestWait time.Duration `json:"oldest_wait_ns,omitempty"` // of them
}

// A Wait is a request of a process for a lock.
type Wait struct {
	ID        uint64          `json:"id"` // of the wait, in its process and for as long as it lasts
	Key       string          `json:"key"`
	Tag       namespace.Tag   `json:"tag"` // of a semaphore: its own, which nobody holds
	Semaphore bool            `json:"semaphore,omitempty"`
	Slots     []namespace.Tag `json:"slots,omitempty"` // of the semaphore, one of which will do
	Shared    bool            `json:"shared,omitempty"`
	Age       time.Duration   `json:"age_ns"`            // since the call, over all wait steps
	Left      time.Duration   `json:"left_ns,omitempty"` // until its time is over; 0 = it waits for as long as it takes
	Label     string          `json:"label,omitempty"`
	Ahead     int             `json:"ahead"`             // requests of this process before it
	Session   uint32          `json:"session,omitempty"` // that waits at the server for the key; 0 = none does now
	// Holds are the keys that its caller holds meanwhile.
	Holds []namespace.Tag `json:"holds,omitempty"`
}

// An Election is one that a process takes part in.
type Election struct {
	Name   string          `json:"name"`
	Key    string          `json:"key"`
	Tags   []namespace.Tag `json:"tags"`             // the locks that it uses, the one that decides first
	Class  uint32          `json:"class"`            // classid of its further locks, which are single keys
	Node   string          `json:"node"`             // this candidate
	State  string          `json:"state"`            // leader.State, as text
	Age    time.Duration   `json:"age_ns"`           // of the state
	Leader string          `json:"leader,omitempty"` // whom it knows to lead, itself included
	Term   string          `json:"term,omitempty"`   // of this node's leadership
	Lease  time.Duration   `json:"lease_ns"`
	// StandsBack: it leaves the next leadership to another candidate.
	StandsBack bool   `json:"stands_back,omitempty"`
	Session    uint32 `json:"session,omitempty"` // on which it leads or waits; 0 = none
	Error      string `json:"error,omitempty"`   // why the last attempt failed; "" = it did not
	// HandOvers are the newest changes of leader that it saw, newest first.
	HandOvers []HandOver `json:"hand_overs,omitempty"`
}

// A Group is one of shards that a process takes part in. The shards that it owns are Locks, as far as
// the question's limit goes; the group says of the rest whose they are.
type Group struct {
	Name    string        `json:"name"`    // "tenant=7"
	Number  int           `json:"number"`  // of its namespace
	Members namespace.Tag `json:"members"` // the lock that all members share
	Node    string        `json:"node"`    // this member
	Session uint32        `json:"session"` // that carries what it owns
	Owned   int           `json:"owned"`   // shards on the session
}

// Uses reports whether a lock is one of the election's.
func (e Election) Uses(t namespace.Tag) bool {
	return slices.Contains(e.Tags, t) || t.ClassID == e.Class && t.ObjSubID == namespace.SingleForm
}

// A HandOver is a change of leader.
type HandOver struct {
	Age  time.Duration `json:"age_ns"`
	Node string        `json:"node"` // that leads since
	Term string        `json:"term,omitempty"`
}
