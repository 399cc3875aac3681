package introspect

import (
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/namespace"
)

// A Question says what is asked of all processes. The zero value asks for everything.
type Question struct {
	// Tags are the locks that are asked for. nil = all.
	Tags []namespace.Tag `json:"tags,omitempty"`
	// Prefix is that of the keys' text, as "order/". It finds nothing in a process that hides its
	// entities, unless it ends before them. "" = all.
	Prefix string `json:"prefix,omitempty"`
	// Limit is how many locks, and how many waits, a process describes. 0 = 500; at most 5,000.
	Limit int `json:"limit,omitempty"`
	// Timeout is how long to wait for those who do not answer. 0 = 1 s.
	Timeout time.Duration `json:"-"`
}

// Matches reports whether a lock is asked for.
func (q Question) Matches(tag namespace.Tag, text string) bool {
	if !strings.HasPrefix(text, q.Prefix) {
		return false
	}
	return len(q.Tags) == 0 || slices.Contains(q.Tags, tag)
}

// An Answers is what came back.
type Answers struct {
	Answers []Answer // of different processes, by service, host and pid
	// Silent are the listening sessions of this database that did not answer in time: their
	// processes are stopped, cut off, or very busy.
	Silent []Silent
}

// A Silent is a process that listens and does not answer.
type Silent struct {
	Session         uint32 `json:"session"`          // its listening session
	ApplicationName string `json:"application_name"` // that of the process' lock sessions
}

// A RequestKind is what a process is asked to do.
type RequestKind string

// The kinds of requests.
const (
	AskRelease RequestKind = "release" // a lock
	AskResign  RequestKind = "resign"  // an election
	AskDump    RequestKind = "dump"    // the stack of the goroutine that holds a lock

	// askStandBack goes ahead of a resignation in favor of a candidate.
	askStandBack RequestKind = "stand_back"
)

// A Request asks the processes that hold a lock, or lead an election, to do something.
type Request struct {
	Kind RequestKind `json:"kind"`
	// Tag is the lock's; of an election the one that decides it.
	Tag namespace.Tag `json:"tag"`
	// To names the candidate that is to lead next, as Election.Node does: the others stand back until it leads. They stop
	// when another term begins, and as soon as the leader has gone and this candidate does not wait for its place. "" = any.
	To string `json:"to,omitempty"`
	// Timeout is how long to wait for replies. 0 = 1 s.
	Timeout time.Duration `json:"-"`
}

// StandBack reports whether the request only prepares a resignation: candidates other than To
// leave the next leadership to that one.
func (r Request) StandBack() bool { return r.Kind == askStandBack }

// A Reply is what a process says to a Request that concerns it.
type Reply struct {
	Process Process `json:"process"`
	Key     string  `json:"key"`
	// Done: it was accepted, and what was asked for has begun.
	Done bool `json:"done"`
	// Refused says why it was not.
	Refused string `json:"refused,omitempty"`
	// Note says more, as "the program has not looked at Lock.Asked yet".
	Note    string `json:"note,omitempty"`
	Session uint32 `json:"session"` // that replied
}
