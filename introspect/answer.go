package introspect

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/pglatch/pglatch/namespace"
)

// An Answer is the report of one process about itself, as of the moment when it was asked. Its
// times are ages, so the clocks of processes need not agree.
type Answer struct {
	Process   Process    `json:"process"`
	Locks     []Lock     `json:"locks,omitempty"`     // that it holds: those with waiters first, then the oldest
	Waits     []Wait     `json:"waits,omitempty"`     // the oldest first
	Elections []Election `json:"elections,omitempty"` // that it takes part in
	Groups    []Group    `json:"groups,omitempty"`    // of shards that it takes part in
	// AllLocks and AllWaits count everything that matched the question, even beyond its limit.
	AllLocks int `json:"all_locks"`
	AllWaits int `json:"all_waits"`

	// Session is the server session that answered: its pid in pg_stat_activity, as PostgreSQL
	// reports it.
	Session uint32 `json:"session"`
	// Took is the time from the question to the last part of the answer.
	Took time.Duration `json:"took_ns"`
}

// A Process describes a process that answers.
type Process struct {
	ID string `json:"id"` // random, constant while the process runs
	// Service is Config.Service of the first Locker, election or group that has one. The locks, waits, elections
	// and groups of another service name it.
	Service string        `json:"service"`
	Version string        `json:"version,omitempty"`
	Host    string        `json:"host"`
	PID     int           `json:"pid"` // in its operating system
	Age     time.Duration `json:"-"`   // "age" in JSON
	// Clock is the time of the process's clock when it answered.
	Clock time.Time `json:"clock"`
}

// processJSON is a Process in JSON. Commands show it in their documents, which have times in
// seconds.
type processJSON struct {
	process
	Age float64 `json:"age"`
}

type process Process

// maxAge is the greatest age that UnmarshalJSON accepts: a greater one may not fit a time.Duration.
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

// A Lock describes a lock that a process holds.
type Lock struct {
	Key       string        `json:"key"` // "order/42"; "order/…" if entities are hidden; "1:100" or "@12345" without a namespace
	Tag       namespace.Tag `json:"tag"`
	Semaphore string        `json:"semaphore,omitempty"` // the semaphore that the lock is a slot of
	Slots     int           `json:"slots,omitempty"`     // number of slots of the semaphore
	Shared    bool          `json:"shared,omitempty"`
	Age       time.Duration `json:"age_ns"` // since the grant
	Label     string        `json:"label,omitempty"`
	Group     string        `json:"group,omitempty"`      // the group of shards that it belongs to
	Service   string        `json:"service,omitempty"`    // of the Locker; "" = Process.Service
	Session   uint32        `json:"session"`              // the session that holds it: the pid in pg_locks
	Beside    int           `json:"beside,omitempty"`     // other keys on the session, which end with it
	Doubtful  bool          `json:"doubtful,omitempty"`   // the server has not answered in time
	Asked     bool          `json:"asked,omitempty"`      // its release was requested
	HandOvers int64         `json:"hand_overs,omitempty"` // of the key inside the process, since the server granted it the key

	Waiters    int           `json:"waiters,omitempty"`        // requests of this process that wait for the key
	OldestWait time.Duration `json:"oldest_wait_ns,omitempty"` // age of the oldest of them
}

// A Wait describes a request of a process for a lock.
type Wait struct {
	ID        uint64          `json:"id"` // identifies the wait in its process while it lasts
	Key       string          `json:"key"`
	Tag       namespace.Tag   `json:"tag"` // for a semaphore: its own tag, which nobody holds
	Semaphore bool            `json:"semaphore,omitempty"`
	Slots     []namespace.Tag `json:"slots,omitempty"` // of the semaphore; any one of them ends the wait
	Shared    bool            `json:"shared,omitempty"`
	Age       time.Duration   `json:"age_ns"`            // since the call, over all wait steps
	Left      time.Duration   `json:"left_ns,omitempty"` // until its deadline; 0 = it has none
	Label     string          `json:"label,omitempty"`
	Service   string          `json:"service,omitempty"` // of the Locker; "" = Process.Service
	Ahead     int             `json:"ahead"`             // requests of this process that come before it
	Session   uint32          `json:"session,omitempty"` // the session that waits at the server for the key; 0 = none at present
	// Holds are the keys that the caller of the request holds while it waits.
	Holds []namespace.Tag `json:"holds,omitempty"`
}

// An Election describes an election that a process takes part in.
type Election struct {
	Name    string          `json:"name"`
	Key     string          `json:"key"`
	Tags    []namespace.Tag `json:"tags"`              // the locks that it uses; the first is the one that decides
	Class   uint32          `json:"class"`             // classid of its further locks, which are single keys
	Node    string          `json:"node"`              // this candidate
	Service string          `json:"service,omitempty"` // of the election; "" = Process.Service
	State   string          `json:"state"`             // leader.State, as text
	Age     time.Duration   `json:"age_ns"`            // of the state
	Leader  string          `json:"leader,omitempty"`  // the leader that it knows of, which can be itself
	Term    string          `json:"term,omitempty"`    // of this node's leadership
	Lease   time.Duration   `json:"lease_ns"`
	// StandsBack: the candidate leaves the next leadership to another one.
	StandsBack bool   `json:"stands_back,omitempty"`
	Session    uint32 `json:"session,omitempty"` // the session on which it leads or waits; 0 = none
	Error      string `json:"error,omitempty"`   // why the last attempt failed; "" = it did not fail
	// HandOvers are the latest changes of leader that the process saw, newest first.
	HandOvers []HandOver `json:"hand_overs,omitempty"`
}

// A Group describes a group of shards that a process takes part in. The shards that it owns are
// Locks, up to the question's limit. For the rest, the group identifies the owner.
type Group struct {
	Name    string        `json:"name"`              // "tenant=7"
	Number  int           `json:"number"`            // of its namespace
	Members namespace.Tag `json:"members"`           // the lock that all members share
	Node    string        `json:"node"`              // this member
	Service string        `json:"service,omitempty"` // of the node; "" = Process.Service
	Session uint32        `json:"session"`           // the session that carries its shards
	Owned   int           `json:"owned"`             // shards on the session
}

// A HandOver describes a change of leader.
type HandOver struct {
	Age  time.Duration `json:"age_ns"`
	Node string        `json:"node"` // the new leader
	Term string        `json:"term,omitempty"`
}
