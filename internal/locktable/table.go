package locktable

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A Tag identifies a lock at the server.
type Tag = namespace.Tag

// A Mode is the mode of a lock.
type Mode = session.Mode

// The modes of a lock.
const (
	Exclusive = session.Exclusive
	Shared    = session.Shared
)

// An Instant is a time, measured from the carrier's start.
type Instant = time.Duration

// Limits configure a table.
type Limits struct {
	MaxConns       int
	LocksPerConn   int           // 1 = a dedicated connection for each lock, on which it is also waited for
	HandOverBudget time.Duration // how long requests of this process may hand a lock over before other processes get their turn
}

// A Table is a Locker's state of all its locks.
type Table struct {
	limits    Limits
	maxLocks  int   // 0 = no limit
	lockTable int   // room for locks at the server, for errors; 0 = unknown
	closed    error // nil = it is open
	broken    error // the detected bug; nil = none
	now       Instant
	commands  []Command
	record    func(Event) // nil = no recording

	keys  map[Tag]*Key
	pools map[Tag]*Key // of semaphores, whose slots are in keys
	spare []*Key       // forgotten keys, for reuse
	used  int          // keys that have a connection

	conns     list[Conn] // all, including those that are being made, or were lost and are not closed yet
	connCount int
	made      int        // connections so far; their number
	room      list[Conn] // those with room for a key; the next key goes to the last
	notBefore Instant    // when the next connection may be made for a wait
	starved   list[Key]  // keys that wait for a connection while none may be made, in order
	polled    list[Key]  // keys that wait without a connection
	polling   bool       // a Poll is scheduled
	round     int        // of polls
}

// New returns an empty table.
func New(limits Limits) *Table {
	t := (&Table{limits: limits}).Twin()
	if watch != nil {
		watch(t)
	}
	return t
}

// SetCapacity bounds the locks of the table; 0 = no limit. room is the server's capacity, for errors.
func (t *Table) SetCapacity(maxLocks, room int) {
	if t.record != nil {
		t.record(Event{Kind: EventCapacity, Counts: [2]int{maxLocks, room}})
	}
	t.maxLocks, t.lockTable = maxLocks, room
}

// A Kind is the kind of a Command.
type Kind uint8

// The kinds of commands.
const (
	// Dial: make Conn. Then Connected or Unmade follows.
	Dial Kind = iota
	// Abort: end the attempt to make Conn. Then Unmade follows, or Connected.
	Abort
	// Drive: Conn has pending operations; drive it with Take and Answer.
	Drive
	// Attend: start a goroutine that calls Next for Conn until that returns Leave.
	Attend
	// Interrupt: end the current step, or sleep, on Conn soon.
	Interrupt
	// Wake: end a sleep of the goroutine that waits on Conn.
	Wake
	// Watch: report when the idle session of Conn ends.
	Watch
	// Rest: Conn is idle. Call Rested after a while.
	Rest
	// Lose: Conn, and the locks of Holders, ended for Cause.
	Lose
	// Close: Conn was lost and is unused. Call Closed when its session is closed.
	Close
	// Settle: Request is settled: see Request.Err.
	Settle
	// Wait, issued once for a request: Request waits behind Ahead others, or for another process.
	Wait
	// Suspect: Request waits at the server while its caller holds locks. It may close a cycle through another table.
	Suspect
	// Pause: call Resume, for Tag and Pool, after about Delay.
	Pause
	// Reopen: call Reopened, for Tag, after Delay.
	Reopen
	// Poll: call Polled after a while.
	Poll
	// Break: the table found a bug, Cause, and is unusable. All requests have been settled, and Holders are lost.
	Break
)

// A Command is an action for the carrier.
type Command struct {
	Kind    Kind
	Conn    *Conn
	Request *Request
	Holders []*Holder
	Cause   error
	Tag     Tag
	Pool    bool
	Ahead   int
	Delay   time.Duration
}

// Commands returns the commands since the last call. They are valid until the next event.
func (t *Table) Commands() []Command {
	commands := t.commands
	t.commands = t.commands[:0]
	if t.record != nil {
		t.record(Event{Kind: EventCommands, Commands: commands})
	}
	return commands
}

func (t *Table) do(c Command) { t.commands = append(t.commands, c) }

// Reasons why a request ends without its lock. Other reasons are the errors that the carrier passed in.
var (
	ErrTaken   = errors.New("taken")                               // a try found the lock held
	ErrNoConn  = errors.New("no connection")                       // all connections are in use, and the caller cannot wait for one
	ErrNoReply = errors.New("no answer from the server in time")   // its operation is under way
	ErrDialing = errors.New("no connection to the server in time") // its connection is being made
	errGone    = errors.New("the session was given back")
)

// A ReentrantError means that the caller already holds the lock.
type ReentrantError struct {
	Holder *Holder
	Tag    Tag // the lock's; of a semaphore, that of the slot that the caller holds
}

func (e *ReentrantError) Error() string { return fmt.Sprintf("%v is held by the caller", e.Tag) }

// A DeadlockError lists requests. Each waits for a lock that the caller of the next one holds.
type DeadlockError struct{ Cycle []*Request }

func (e *DeadlockError) Error() string { return fmt.Sprintf("a cycle of %d waits", len(e.Cycle)) }

// A BugError is a violated invariant.
type BugError struct{ Problem string }

func (e BugError) Error() string { return "BUG: " + e.Problem }

// Close ends all waits and locks with a cause. Later requests fail with it.
func (t *Table) Close(now Instant, cause error) {
	if t.record != nil {
		t.record(Event{Kind: EventClose, At: now, Err: cause})
	}
	defer t.guard()
	if t.broken != nil {
		return
	}
	t.now, t.closed = now, cause
	for _, keys := range []map[Tag]*Key{t.keys, t.pools} {
		for _, k := range slices.SortedFunc(maps.Values(keys), func(a, b *Key) int { return a.tag.Compare(b.tag) }) {
			k.failAll(cause)
			k.tidy()
		}
	}
	for n := range t.conns.all {
		t.end(n, cause)
	}
}

// guard recovers a panic of an event: the table's state can no longer be trusted. All of its locks are lost, and all
// requests fail, so that no request waits forever and no holder continues to work.
func (t *Table) guard() {
	p := recover()
	if p == nil {
		return
	}
	bug, ok := p.(BugError)
	if !ok {
		bug = BugError{fmt.Sprint(p)}
	}
	t.broken = bug
	if t.closed == nil {
		t.closed = bug
	}
	var holders []*Holder
	for _, keys := range []map[Tag]*Key{t.keys, t.pools} {
		for _, k := range keys {
			for _, h := range k.holders {
				if h.phase == Active {
					h.phase, h.cause = Lost, bug
					holders = append(holders, h)
				}
			}
			for r, n := k.requests.first, 0; r != nil && n < 1<<20; r, n = r.after, n+1 { // the list itself can be broken
				t.breaks(r.of)
			}
			t.breaks(k.op.By)
		}
	}
	for n := range t.conns.all {
		for _, o := range append(n.pending, n.batch...) {
			t.breaks(o.By)
		}
	}
	clear(t.keys)
	clear(t.pools)
	t.do(Command{Kind: Break, Holders: holders, Cause: bug})
}

// breaks fails a request with the bug.
func (t *Table) breaks(r *Request) {
	if r != nil && r.phase == queued {
		r.phase, r.err = settled, t.broken
		if h := r.Holder; h != nil && h.phase == Partial {
			h.phase, h.cause = Lost, t.broken
		}
		r.done()
		t.do(Command{Kind: Settle, Request: r})
	}
}

// Key returns the state of a tag; pool = of the semaphore on it. nil = none.
func (t *Table) Key(tag Tag, pool bool) *Key { return t.table(pool)[tag] }

// Keys yields all keys, and then all semaphores.
func (t *Table) Keys(yield func(*Key) bool) {
	for _, keys := range []map[Tag]*Key{t.keys, t.pools} {
		for _, k := range keys {
			if !yield(k) {
				return
			}
		}
	}
}

// Conns yields all connections.
func (t *Table) Conns(yield func(*Conn) bool) { t.conns.all(yield) }

// Used returns the number of keys that have a connection, and the limit; 0 = none.
func (t *Table) Used() (used, limit int) { return t.used, t.maxLocks }

// Ended reports why the table accepts no more requests; nil = it does.
func (t *Table) Ended() error { return t.closed }

// Now is the time of the last event.
func (t *Table) Now() Instant { return t.now }

// Broken is the bug that the table detected in itself; nil = none.
func (t *Table) Broken() error { return t.broken }

// key returns the state of a tag, and creates it if necessary.
func (t *Table) key(tag Tag, pool bool) *Key {
	keys := t.table(pool)
	if k := keys[tag]; k != nil {
		return k
	}
	var k *Key
	if last := len(t.spare) - 1; last >= 0 {
		k, t.spare = t.spare[last], t.spare[:last]
	} else {
		k = new(Key)
	}
	k.table, k.tag, k.pool = t, tag, pool
	k.holders = k.room[:0]
	keys[tag] = k
	return k
}

func (t *Table) table(pool bool) map[Tag]*Key {
	if pool {
		return t.pools
	}
	return t.keys
}

// maxSpare bounds the memory that is kept after a burst.
const maxSpare = 1024

// tidy forgets a key that is no longer needed.
func (k *Key) tidy() {
	if k.phase != Free || k.waiting > 0 {
		return
	}
	t := k.table
	if keys := t.table(k.pool); keys[k.tag] == k {
		delete(keys, k.tag)
		if len(t.spare) < maxSpare {
			*k = Key{}
			t.spare = append(t.spare, k)
		}
	}
}
