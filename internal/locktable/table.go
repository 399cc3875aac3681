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

// A Mode is how a lock is held.
type Mode = session.Mode

// The modes of a lock.
const (
	Exclusive = session.Exclusive
	Shared    = session.Shared
)

// An Instant is a time, as the time since the carrier began.
type Instant = time.Duration

// Limits are what a table is configured with.
type Limits struct {
	MaxConns       int
	LocksPerConn   int           // 1 = a connection of its own for each lock, on which it is also waited for
	HandOverBudget time.Duration // how long a lock passes between requests of this process before other processes get their turn
}

// A Table is all that a Locker knows of its locks.
type Table struct {
	limits    Limits
	maxLocks  int   // 0 = no limit
	lockTable int   // room for locks at the server, for errors; 0 = not known
	closed    error // nil = it is open
	broken    error // the bug that was found; nil = none
	now       Instant
	commands  []Command
	record    func(Event) // nil = nobody records

	keys  map[Tag]*Key
	pools map[Tag]*Key // of semaphores, whose slots are in keys
	spare []*Key       // forgotten keys, for reuse
	used  int          // keys that have a connection

	conns     list[Conn] // all, also those that are being made or were lost and are not closed yet
	connCount int
	made      int        // connections so far, which numbers them
	room      list[Conn] // those that take another key; the next key goes to the last
	notBefore Instant    // when the next connection may be made for a wait
	starved   list[Key]  // keys without a connection while none may be made, in order
	polled    list[Key]  // keys that wait without a connection
	polling   bool       // a poll is due
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

// SetCapacity bounds the locks of the table; 0 = no limit. room is that of the server, for errors.
func (t *Table) SetCapacity(maxLocks, room int) {
	if t.record != nil {
		t.record(Event{Kind: EventCapacity, Counts: [2]int{maxLocks, room}})
	}
	t.maxLocks, t.lockTable = maxLocks, room
}

// A Kind says what a Command is for.
type Kind uint8

// The kinds of commands.
const (
	// Dial asks for Conn to be made. Then Connected or Unmade follows.
	Dial Kind = iota
	// Abort asks that the attempt to make Conn ends. Then Unmade follows, or Connected.
	Abort
	// Drive says that Conn has pending operations, and is for the carrier to drive with Take and Answer.
	Drive
	// Attend asks for a goroutine that calls Next for Conn until that returns Leave.
	Attend
	// Interrupt asks that the step under way on Conn ends soon, or the sleep.
	Interrupt
	// Wake asks that a sleep of the goroutine that waits on Conn ends.
	Wake
	// Watch asks for a report when the idle session of Conn ends.
	Watch
	// Rest says that Conn has nothing to do. The carrier calls Rested after a while.
	Rest
	// Lose says that Conn, and the locks of Holders, ended for Cause.
	Lose
	// Close says that nobody uses Conn, which was lost. The carrier calls Closed when its session is closed.
	Close
	// Settle says that Request is over: see Request.Err.
	Settle
	// Wait says, once for a request, that Request waits behind Ahead others, or for another process.
	Wait
	// Suspect says that Request waits at the server while its caller holds locks: it may close a circle through another table.
	Suspect
	// Pause asks for Resume, for Tag and Pool, after Delay, give or take.
	Pause
	// Reopen asks for Reopened, for Tag, after Delay.
	Reopen
	// Poll asks for Polled after a while.
	Poll
	// Break says that the table found a bug, Cause, and is of no use any more. All requests have been settled, and Holders are lost.
	Break
)

// A Command is what the carrier is to do.
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

// Reasons for which a request ends without its lock. Other reasons are the errors that the carrier passed in.
var (
	ErrTaken   = errors.New("taken")                               // a try found the lock held
	ErrNoConn  = errors.New("no connection")                       // all connections are in use, and the caller cannot wait for one
	ErrNoReply = errors.New("no answer from the server in time")   // its operation is under way
	ErrDialing = errors.New("no connection to the server in time") // its connection is being made
	errGone    = errors.New("the session was given back")
)

// A ReentrantError says that the caller holds the lock already.
type ReentrantError struct {
	Holder *Holder
	Tag    Tag // the lock's; for a slot, that of the slot that the caller holds
}

func (e *ReentrantError) Error() string { return fmt.Sprintf("%v is held by the caller", e.Tag) }

// A DeadlockError lists requests of which each waits for a lock that the caller of the next holds.
type DeadlockError struct{ Cycle []*Request }

func (e *DeadlockError) Error() string { return fmt.Sprintf("a cycle of %d waits", len(e.Cycle)) }

// A BugError is an invariant that does not hold.
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

// guard ends a panic of an event: what the table believes is not to be trusted any more. All of its locks are lost, and all requests fail,
// so that nobody waits for ever and nobody works on.
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

// Key returns what is known of a tag; pool = of the semaphore on it. nil = nothing.
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

// Used is the number of keys that have a connection, and the limit; 0 = none.
func (t *Table) Used() (used, limit int) { return t.used, t.maxLocks }

// Ended reports why the table takes no requests any more; nil = it does.
func (t *Table) Ended() error { return t.closed }

// Broken is the bug that the table found in itself; nil = none.
func (t *Table) Broken() error { return t.broken }

// key returns what is known of a tag.
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

// maxSpare bounds what is kept of a burst.
const maxSpare = 1024

// tidy forgets a key that nobody needs.
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
