package incident

import (
	"time"

	"github.com/pglatch/pglatch/namespace"
)

// A Picture is all that is known of a database's locks at one moment.
type Picture struct {
	At        time.Time // by the server's clock
	Keys      []*Key    // in the order of the rows, then those that only processes know
	Processes []*Process
	Elections []*Election
	Cycles    []Cycle
	Server    Server
	// Unseen are locks that processes say they hold and PostgreSQL does not have there.
	Unseen []Unseen
	// Clashes are namespaces of one number that processes call by different names.
	Clashes []Clash
}

// A Kind is what a key is for.
type Kind string

// The kinds of keys.
const (
	Mutex     Kind = "lock"
	Semaphore Kind = "semaphore"
	Leading   Kind = "election"
	Shard     Kind = "shard"
)

// A Key is a lock, or a semaphore with all its slots, that somebody holds or waits for.
type Key struct {
	ID        string // for links; does not tell the key
	Tag       namespace.Tag
	Text      string
	Namespace string // "" = none that has a name
	Kind      Kind
	Group     string // of shards, of which it is one
	Slots     int    // of a semaphore
	Holders   []*Holder
	Waiters   []*Waiter // in the order of the queue, as far as it is known
	HandOvers int64     // inside the process that holds it
	Quoted    bool      // Text is not the key as its users have it: a part, or without what cannot be printed
	// Shown is false if what it is must not be told: then nor is how to find it in psql.
	Shown bool
}

// Leads reports whether who holds it leads with it, for as long as it runs.
func (k *Key) Leads() bool { return k.Kind == Leading || k.Kind == Shard }

// Since is the longest time for which the key has been held.
func (k *Key) Since() (age time.Duration) {
	for _, h := range k.Holders {
		age = max(age, h.Age)
	}
	return age
}

// Longest is the longest wait for the key.
func (k *Key) Longest() (age time.Duration) {
	for _, w := range k.Waiters {
		age = max(age, w.Age)
	}
	return age
}

// Waited is how long all waiters have waited for the key together: 2,000 that wait for a second are in more trouble than one.
func (k *Key) Waited() (sum time.Duration) {
	for _, w := range k.Waiters {
		sum += max(w.Age, time.Millisecond)
	}
	return sum
}

// A Session is one of the server's.
type Session struct {
	PID      uint32 // 0 = none: of a prepared transaction, or a wait inside a process
	Name     string // application_name
	State    string // of pg_stat_activity; "" = not told
	StateAge time.Duration
}

// A Holder is a session that holds a key.
type Holder struct {
	Session
	Tag      namespace.Tag // of a semaphore: the slot
	Process  *Process      // nil = none that answers says that it holds this
	Prepared bool
	Shared   bool
	Age      time.Duration
	Exact    bool // Age is what the process says; else it is since a look first saw it
	Labels   []string
	Node     string // of a group of shards
	Count    int    // requests of the process that share it
	Beside   int
	Doubtful bool
	Asked    bool
}

// Who names the holder.
func (h *Holder) Who() string {
	switch {
	case h.Process != nil:
		return h.Process.Name
	case h.Prepared:
		return "a prepared transaction"
	case h.Name == "":
		return "session " + number(h.PID)
	}
	return h.Name
}

// A Waiter is a request for a key, or a session of which no process says that it is its own.
type Waiter struct {
	Session
	Tag     namespace.Tag
	Process *Process // nil = as with Holder
	Shared  bool
	Age     time.Duration
	Left    time.Duration // 0 = as long as it takes
	Label   string
	Ahead   int
	Inside  bool            // it waits in its process, behind the one that waits at the server
	Holds   []namespace.Tag // meanwhile
	tags    []namespace.Tag // one of which will do
	row     int             // the place in the server's queue; -1 = in none
}

// Who names the waiter.
func (w *Waiter) Who() string {
	switch {
	case w.Process != nil:
		return w.Process.Name
	case w.Name == "":
		return "session " + number(w.PID)
	}
	return w.Name
}

// A Process is one that answers, or did.
type Process struct {
	ID, Name               string
	Service, Version, Host string
	PID                    int
	Age                    time.Duration
	Listener               uint32 // the session with which it answers
	Holds, Waits           int
	Complete               bool // the answer has all its locks
	// Silent: it did not answer. The rest is what it said last.
	Silent     bool
	LastSpoke  time.Time // zero = never to us
	Clock      time.Duration
	ClockError time.Duration // by which Clock may be wrong
}

// Place says which program it is, and where.
func (p *Process) Place() string {
	program := p.Service
	if p.Version != "" {
		program += " " + p.Version
	}
	return program + ", process " + number(p.PID) + " on " + p.Host
}

// An Election is what its candidates say of it.
type Election struct {
	ID, Name, Key string        // "mail and report", if candidates differ
	Tag           namespace.Tag // that decides; zero = no lock of this database
	Members       []Member
	Holder        *Holder  // of the deciding lock; nil = nobody
	Names         []string // by which its candidates call it
	class         uint32   // the classid of its other locks; 0 = not told
	keys          []*Key   // that it uses, the one that decides first
}

// A Member is a candidate of an election.
type Member struct {
	Process           *Process
	Name              string // of the election, as it calls it
	Node, State       string
	Age, Lease        time.Duration
	Leader, Term, Err string
	Session           uint32
	HandOvers         []HandOver
}

// A HandOver is a change of leader.
type HandOver struct {
	Age        time.Duration
	Node, Term string
}

// Leaders are those who say that they lead.
func (e *Election) Leaders() (all []Member) {
	for _, m := range e.Members {
		if m.State == "leader" && !m.Process.Silent {
			all = append(all, m)
		}
	}
	return all
}

// MayLead returns for how long a member that led and does not answer may go on to lead: until its lease is over,
// which a sign of life of its session began, or its last answer.
func (e *Election) MayLead(m Member, at time.Time) time.Duration {
	if m.State != "leader" || !m.Process.Silent || m.Process.LastSpoke.IsZero() {
		return 0
	}
	left := m.Lease - at.Sub(m.Process.LastSpoke)
	if h := e.Holder; h != nil && h.PID == m.Session && h.State != "" {
		left = max(left, m.Lease-h.StateAge)
	}
	return max(left, 0)
}

// SilentLeader is the member that may go on to lead for the longest time, if one may that does not answer.
func (e *Election) SilentLeader(at time.Time) (leader Member, left time.Duration) {
	for _, m := range e.Members {
		if may := e.MayLead(m, at); may > left {
			leader, left = m, may
		}
	}
	return leader, left
}

// A Server is what is known of the database server.
type Server struct {
	Version, Database      string
	Standby                bool
	Locks, LockRoom        int     // in the lock table
	Takers                 []Taker // of most entries, the greatest first
	Connections, ConnLimit int
	Clock                  time.Duration // ahead of ours
	Partial                bool          // PostgreSQL hides states from our role
	Unanswered             string        // why the processes could not be asked; "" = they were
}

// A Taker is a session that has entries of the lock table.
type Taker struct {
	PID      uint32 `json:"pid"` // 0 = prepared transactions
	Name     string `json:"name"`
	Database string `json:"database"`
	Locks    int    `json:"locks"`
}

// An Unseen is a lock that a process says it holds.
type Unseen struct {
	Process *Process
	Text    string
	KeyID   string
	PID     uint32
	Age     time.Duration
}

// A Clash is a number that is used by two names.
type Clash struct {
	Number int
	Names  []string
	Whose  []string // the processes' names, for each name one
}
