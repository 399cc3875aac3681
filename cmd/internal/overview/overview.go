// Package overview shows the holders and waiters of each key. PostgreSQL knows the sessions. The processes
// know the names, the times and the waiters inside them.
package overview

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// A Kind is the use of a key.
type Kind string

// The kinds of keys, beside those of package fleet.
const (
	Lock      Kind = "lock"
	Semaphore Kind = "semaphore"
	Election  Kind = "election"
	Mailbox   Kind = "mailbox" // that a node of a mailbox holds while it serves
)

// A Row is one key, with all its holders and waiters.
type Row struct {
	Key     string          `json:"key"` // "order/42"; "@12345" if no process named it
	Kind    Kind            `json:"kind"`
	Tag     namespace.Tag   `json:"tag"`             // of an election, the deciding one; of a semaphore, its key's
	Tags    []namespace.Tag `json:"-"`               // of all its locks in PostgreSQL
	Slots   int             `json:"slots,omitempty"` // of a semaphore; 0 = unknown
	Holders []Party         `json:"holders"`
	Waiters []Party         `json:"waiters"` // the oldest first

	namespace string // of the key's number, if its text does not contain it
}

// A Party is one holder of a key, or one waiter for it.
type Party struct {
	Name string `json:"name"` // "billing@web-3:4711" for a process that answers, otherwise the session's application_name
	// PID is the session's. 0 = a prepared transaction, or a waiter inside its process.
	PID    uint32        `json:"pid"`
	Shared bool          `json:"shared,omitempty"`
	Age    time.Duration `json:"-"` // of the hold or the wait; "duration" in a document
	// Exact: the process reported the age. Otherwise a hold is at least as old as its first sighting, and a
	// wait of pglatch is only its current wait step.
	Exact bool          `json:"exact"`
	Label string        `json:"label,omitempty"`
	State string        `json:"state,omitempty"` // of the session, as in pg_stat_activity
	Note  string        `json:"note,omitempty"`
	Left  time.Duration `json:"-"` // of a wait, until its time limit
	// Silent: its process listens to questions and does not answer.
	Silent  bool                `json:"silent,omitempty"`
	Process *introspect.Process `json:"process,omitempty"`
	// Session is when the session began; nil if hidden.
	Session *time.Time `json:"session_start,omitempty"`
}

// MarshalJSON writes times as the monitor's documents do: in seconds.
func (p Party) MarshalJSON() ([]byte, error) {
	type party Party
	return json.Marshal(struct {
		party
		Duration float64 `json:"duration"`
		Left     float64 `json:"left,omitempty"`
	}{party(p), p.Age.Seconds(), p.Left.Seconds()})
}

// OldestWait is the longest wait for the key.
func (r *Row) OldestWait() time.Duration { return oldest(r.Waiters) }

// waited is the total of all waits: 2,000 waits of a second count for more than one of a minute.
func (r *Row) waited() (sum time.Duration) {
	for _, w := range r.Waiters {
		sum += max(w.Age, time.Millisecond)
	}
	return sum
}

// OldestHold is the longest known hold of the key.
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

// Session returns the party of one session: a holder if granted, otherwise a waiter.
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
