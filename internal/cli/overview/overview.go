// Package overview says of each key who holds it and who waits for it: PostgreSQL knows the
// sessions, and the processes know the names, the times and who waits inside them.
package overview

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// A Kind is what a key is used for.
type Kind string

// The kinds of keys.
const (
	Lock      Kind = "lock"
	Semaphore Kind = "semaphore"
	Election  Kind = "election"
	Shard     Kind = "shard"
)

// A Row is one key: all that is held of it and waits for it.
type Row struct {
	Key     string          `json:"key"` // "order/42"; "@12345" if nobody told its name
	Kind    Kind            `json:"kind"`
	Tag     namespace.Tag   `json:"tag"`             // of an election the one that decides it; of a semaphore its key's
	Tags    []namespace.Tag `json:"-"`               // of all its locks, as far as PostgreSQL has them
	Slots   int             `json:"slots,omitempty"` // of a semaphore; 0 = nobody told
	Holders []Party         `json:"holders"`
	Waiters []Party         `json:"waiters"` // the oldest first

	namespace string // that the key's number belongs to, if its text does not say it
}

// A Party is one holder of a key, or one who waits for it.
type Party struct {
	Name string `json:"name"` // "billing@web-3:4711" of a process that answers, else the session's application_name
	// PID is the session's. 0 = a prepared transaction; of a waiter: none, it waits inside its process.
	PID    uint32        `json:"pid"`
	Shared bool          `json:"shared,omitempty"`
	Age    time.Duration `json:"-"` // of the hold or the wait; "duration" in a document
	// Exact: the process told the age. A hold is at least as old as it was seen, and PostgreSQL
	// knows of a wait of pglatch only its present wait step.
	Exact bool          `json:"exact"`
	Label string        `json:"label,omitempty"`
	State string        `json:"state,omitempty"` // of the session, as pg_stat_activity has it
	Note  string        `json:"note,omitempty"`
	Left  time.Duration `json:"-"` // of a wait, until its time is over
	// Silent: its process listens to questions and does not answer.
	Silent  bool                `json:"silent,omitempty"`
	Process *introspect.Process `json:"process,omitempty"`
	// Session is when the session began; nil if it is hidden.
	Session *time.Time `json:"session_start,omitempty"`
}

// MarshalJSON writes times as documents of the monitor do: in seconds.
func (p Party) MarshalJSON() ([]byte, error) {
	type party Party
	return json.Marshal(struct {
		party
		Duration float64 `json:"duration"`
		Left     float64 `json:"left,omitempty"`
	}{party(p), p.Age.Seconds(), p.Left.Seconds()})
}

// Of makes the rows of what PostgreSQL has and the processes answered, in the order of the
// snapshot. Keys that somebody asks for by name are known: their semaphores are found also if
// no process answers.
func Of(s monitor.Snapshot, known ...namespace.Key) []*Row {
	b := builder{
		answers: s.Answers, rowOf: map[namespace.Tag]*Row{}, semaphores: map[string]*Row{}, gates: map[namespace.Tag]*Row{},
		names: map[namespace.Tag]string{}, told: map[claim]told{}, classes: map[uint32]namespace.Tag{}, processes: map[uint32]*introspect.Process{},
	}
	b.learn(s, known)
	for i := range s.Locks {
		b.add(s.Locks[i])
	}
	b.addCompanions()
	b.addWaits()
	b.addElections()
	rows := slices.DeleteFunc(b.rows, func(r *Row) bool { return len(r.Holders)+len(r.Waiters) == 0 })
	for _, r := range rows {
		slices.SortStableFunc(r.Waiters, func(p, o Party) int { return int(o.Age/time.Millisecond) - int(p.Age/time.Millisecond) })
	}
	return rows
}

// OldestWait is the longest wait for the key.
func (r *Row) OldestWait() time.Duration { return oldest(r.Waiters) }

// waited is how long all waiters have waited together: 2,000 of a second count for more than one of a minute.
func (r *Row) waited() (sum time.Duration) {
	for _, w := range r.Waiters {
		sum += max(w.Age, time.Millisecond)
	}
	return sum
}

// OldestHold is the longest hold of the key, as far as it is known.
func (r *Row) OldestHold() time.Duration { return oldest(r.Holders) }

func oldest(parties []Party) time.Duration {
	var age time.Duration
	for _, p := range parties {
		age = max(age, p.Age)
	}
	return age
}

// Silent reports whether a process that holds the key does not answer.
func (r *Row) Silent() bool {
	return slices.ContainsFunc(r.Holders, func(p Party) bool { return p.Silent })
}

// Session is the party of one session; of those that hold the key, or of those that wait.
func (r *Row) Session(pid uint32, granted bool) (Party, bool) {
	parties := r.Waiters
	if granted {
		parties = r.Holders
	}
	i := slices.IndexFunc(parties, func(p Party) bool { return p.PID == pid })
	if i < 0 {
		return Party{}, false
	}
	return parties[i], true
}
