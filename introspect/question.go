package introspect

import (
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/namespace"
)

// A Question is sent to all processes. The zero value asks for everything.
type Question struct {
	// Tags are the locks to ask for. nil = all.
	Tags []namespace.Tag `json:"tags,omitempty"`
	// Prefix selects keys by the beginning of their text, such as "order/". If a process hides its
	// entities, a prefix that includes part of an entity finds nothing there. "" = all.
	Prefix string `json:"prefix,omitempty"`
	// Limit is the maximum number of locks, and of waits, that a process describes. 0 = 500; at
	// most 5,000.
	Limit int `json:"limit,omitempty"`
	// Timeout is how long to wait for processes that do not answer. 0 = 1 s.
	Timeout time.Duration `json:"-"`
}

// Matches reports whether the question asks for a lock.
func (q Question) Matches(tag namespace.Tag, text string) bool {
	if !strings.HasPrefix(text, q.Prefix) {
		return false
	}
	return len(q.Tags) == 0 || slices.Contains(q.Tags, tag)
}

// Answers are the results of a question.
type Answers struct {
	Answers []Answer // of different processes, by service, host and pid
	// Silent are the listening sessions of this database that did not answer in time, and still exist.
	// Their processes are stopped, cut off, or very busy.
	Silent []Silent
}

// A Silent is a process that listens but does not answer.
type Silent struct {
	Session         uint32 `json:"session"`          // its listening session
	ApplicationName string `json:"application_name"` // that of the process' lock sessions
}

// A RequestKind says what a request asks a process to do.
type RequestKind string

// The kinds of requests.
const (
	AskRelease RequestKind = "release" // a lock
	AskResign  RequestKind = "resign"  // an election
	AskDump    RequestKind = "dump"    // the stack of the goroutine that holds a lock

	// askStandBack precedes a resignation in favor of a candidate.
	askStandBack RequestKind = "stand_back"
)

// A Request asks the processes that hold a lock, or lead an election, to do something.
type Request struct {
	Kind RequestKind `json:"kind"`
	// Tag is the lock's tag; for an election, that of the lock that decides it.
	Tag namespace.Tag `json:"tag"`
	// To names the candidate that should lead next, as Election.Node does. The others stand back
	// until it leads. They stop standing back when another term begins, or when the leader has
	// gone and this candidate is not waiting for leadership. "" = any candidate.
	To string `json:"to,omitempty"`
	// Timeout is how long to wait for replies. 0 = 1 s.
	Timeout time.Duration `json:"-"`
}

// StandBack reports whether the request only prepares a resignation: candidates other than To leave
// the next leadership to To.
func (r Request) StandBack() bool { return r.Kind == askStandBack }

// A Reply is the reply of a process to a Request that concerns it.
type Reply struct {
	Process Process `json:"process"`
	Key     string  `json:"key"`
	// Done: the process accepted the request and has begun to carry it out.
	Done bool `json:"done"`
	// Refused says why the process rejected the request.
	Refused string `json:"refused,omitempty"`
	// Note says more, such as "the program has not looked at Lock.Asked yet".
	Note    string `json:"note,omitempty"`
	Session uint32 `json:"session"` // the session that replied
}
