package incident

import (
	"time"

	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// A Picture is all known data about a database's locks at one moment.
type Picture struct {
	At        time.Time // by the server's clock
	Keys      []*Key    // in the order of the rows, then those that only processes reported
	Processes []*Process
	Elections []*Election
	Mailboxes []*Mailbox
	Cycles    []Cycle
	Server    Server
	// Unseen are locks that processes say they hold, but that PostgreSQL does not have there.
	Unseen []Unseen
	// Clashes are namespaces of one number that processes call by different names.
	Clashes []Clash
	keys    map[namespace.Tag]*Key
	owners  map[uint32]owner
	// Hung are the silent processes of each group's nodes, by group and node.
	Hung map[[2]string]*Process
}

// Key returns the key that a lock belongs to; nil = none.
func (p *Picture) Key(lock namespace.Tag) *Key { return p.keys[lock] }

// An owner is the part of a process that a session belongs to.
type owner struct {
	process *Process
	service string
}

// Owner returns the process that reported anything of a session, and the service of the part of it; nil = none did.
// The process need not know all that the session holds.
func (p *Picture) Owner(session uint32) (*Process, string) {
	o := p.owners[session]
	return o.process, o.service
}

// A Kind is the purpose of a key.
type Kind string

// The kinds of keys.
const (
	Mutex     Kind = "lock"
	Semaphore Kind = "semaphore"
	Leading   Kind = "election"
	Shard     Kind = "shard"

	MailboxLock Kind = "mailbox node" // that a node of a mailbox holds while it serves
)

// A Key is a lock, or a semaphore with all its slots, that has holders or waiters.
type Key struct {
	ID        string // for links; does not reveal the key
	Tag       namespace.Tag
	Text      string
	Namespace string // "" = none with a name
	Kind      Kind
	Group     string // of shards, if it is a shard; the mailbox, if it is a node of one
	Slots     int    // of a semaphore
	Holders   []*Holder
	Waiters   []*Waiter // in the order of the queue, as far as known
	HandOvers int64     // inside the process that holds it
	Quoted    bool      // Text is not the key as its users know it: a part, or without unprintable characters
	// Shown is false if the key must not be revealed: then its psql query is hidden too.
	Shown bool
	// Main is the key that decides the election, if this is another lock of it. nil = it decides, or is no election's.
	Main *Key
	gate namespace.Tag // of a semaphore: its turnstile
}

// Turnstile is the lock where the waiters behind the first one queue. It is the zero Tag for a semaphore whose own key is
// unknown, because nothing else derives it.
func (k *Key) Turnstile() namespace.Tag {
	if k.Kind == Semaphore {
		return k.gate
	}
	return turnstile.Of(k.Tag)
}

// Leads reports whether its holder leads with it, or serves a mailbox, for as long as it runs.
func (k *Key) Leads() bool { return k.Kind == Leading || k.Kind == Shard || k.Kind == MailboxLock }

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

// Waited is the total of all waits for the key: 2,000 waiters of one second each are in more trouble than one waiter.
func (k *Key) Waited() (sum time.Duration) {
	for _, w := range k.Waiters {
		sum += max(w.Age, time.Millisecond)
	}
	return sum
}

// A Session is a session of the server.
type Session struct {
	PID      uint32 // 0 = none: a prepared transaction, or a wait inside a process
	Name     string // application_name
	State    string // of pg_stat_activity; "" = unknown
	StateAge time.Duration
}

// A Holder is a session that holds a key.
type Holder struct {
	Session
	Row      int              // its place in Input.Rows
	Told     *introspect.Lock // the newest that its process reports of it; nil = nothing
	Tag      namespace.Tag    // of a semaphore, the slot
	Process  *Process         // nil = no answering process reports this hold
	Service  string           // of the part of the process that holds it; "" = unknown
	Prepared bool
	Shared   bool
	Age      time.Duration
	Exact    bool // Age is from the process; otherwise it counts from the first query that saw it
	Labels   []string
	Node     string // of a member of a group of shards
	Count    int    // requests of the process that share it
	Beside   int
	Doubtful bool
	Asked    bool
}

// Who returns the name of the holder.
func (h *Holder) Who() string {
	switch {
	case h.Process != nil:
		return h.Process.part(h.Service)
	case h.Prepared:
		return "a prepared transaction"
	case h.Name == "":
		return "session " + number(h.PID)
	}
	return h.Name
}

// Place names the program and its host; "" = unknown.
func (h *Holder) Place() string {
	if h.Process == nil || h.Process.Host == "" {
		return ""
	}
	return h.Process.as(h.Service).Place()
}

// A Waiter is a request for a key, or a session that no process reports as its own.
type Waiter struct {
	Session
	Row     int              // its place in Input.Rows, and thus in the server's queue; -1 = not in it
	Told    *introspect.Wait // nil = no process reports it
	Tag     namespace.Tag
	Process *Process // nil = as with Holder
	Service string   // as with Holder
	Shared  bool
	Age     time.Duration
	Left    time.Duration // 0 = no limit
	Label   string
	Ahead   int
	Inside  bool            // it waits in its process, behind the one that waits at the server
	Holds   []namespace.Tag // meanwhile
}

// Who returns the name of the waiter.
func (w *Waiter) Who() string {
	switch {
	case w.Process != nil:
		return w.Process.part(w.Service)
	case w.Name == "":
		return "session " + number(w.PID)
	}
	return w.Name
}

// A Process is a process that answers, or did.
type Process struct {
	ID, Name               string
	Told                   *introspect.Process // its own words; nil = it never answered us
	Service, Version, Host string
	PID                    int
	Age                    time.Duration
	Listener               uint32 // the session with which it answers
	Holds, Waits           int
	Complete               bool // the answer has all its locks
	Several                bool // its parts are of several services
	// Silent: it did not answer. The rest is from its last answer.
	Silent     bool
	LastSpoke  time.Time // zero = it never answered us
	Clock      time.Duration
	ClockError time.Duration // the possible error of Clock
	unanswered int           // questions since its last answer
}

// part names a part of the process, with its service if another part has another one.
func (p *Process) part(service string) string {
	if !p.Several || service == "" {
		return p.Name
	}
	return p.Name + " (" + service + ")"
}

// as returns the process as its part of a service. The version is that of the process's own service.
func (p *Process) as(service string) *Process {
	if service == "" || service == p.Service {
		return p
	}
	part := *p
	part.Service, part.Version = service, ""
	return &part
}

// Place names the program and its host.
func (p *Process) Place() string {
	program := p.Service
	if p.Version != "" {
		program += " " + p.Version
	}
	return program + ", process " + number(p.PID) + " on " + p.Host
}

// An Election is the combined answers of its candidates.
type Election struct {
	ID, Name, Key string        // "mail and report", if candidates differ
	Tag           namespace.Tag // the deciding lock; zero = none in this database
	Members       []Member
	Holder        *Holder  // of the deciding lock; nil = none
	Names         []string // that its candidates use
	class         uint32   // the classid of its other locks; 0 = unknown
	keys          []*Key   // that it uses, the deciding one first
}

// A Member is a candidate of an election.
type Member struct {
	Process           *Process
	Told              *introspect.Election
	Service           string // of this candidate
	Name              string // of the election, as this candidate calls it
	Node, State       string
	Age, Lease        time.Duration
	Leader, Term, Err string
	Session           uint32
	HandOvers         []HandOver
}

// Who returns the name of its process.
func (m *Member) Who() string { return m.Process.part(m.Service) }

// A HandOver is a change of leader.
type HandOver struct {
	Age        time.Duration
	Node, Term string
}

// Leaders returns the members that say they lead.
func (e *Election) Leaders() (all []Member) {
	for _, m := range e.Members {
		if m.State == "leader" && !m.Process.Silent {
			all = append(all, m)
		}
	}
	return all
}

// MayLead returns for how long a member that led and does not answer may continue to lead: until its lease is over. The
// lease began with a sign of life of its session, or with its last answer.
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

// SilentLeader returns the silent member that may continue to lead for the longest time, if there is one.
func (e *Election) SilentLeader(at time.Time) (leader Member, left time.Duration) {
	for _, m := range e.Members {
		if may := e.MayLead(m, at); may > left {
			leader, left = m, may
		}
	}
	return leader, left
}

// A Server is the known data of the database server.
type Server struct {
	Version, Database      string
	Standby                bool
	Locks, LockRoom        int     // in the lock table
	Takers                 []Taker // with the most entries, the greatest first
	Connections, ConnLimit int
	Clock                  time.Duration // ahead of the local clock
	Partial                bool          // PostgreSQL hides states from our role
	Unanswered             string        // why the processes could not be asked; "" = they were
	Commits                Commits
}

// Commits are those that wait for a synchronous standby.
type Commits struct {
	Waiting  int
	Longest  time.Duration
	Who      []string // application names, 5 at most
	Standbys string   // synchronous_standby_names
}

// A Taker is a session with entries in the lock table.
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

// A Clash is a number with two names.
type Clash struct {
	Number int
	Names  []string
	Whose  []string // the processes' names, one for each name
}
