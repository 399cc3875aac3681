package turnstest

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A store is what is committed.
type store struct {
	boxes         map[string]*box
	number, token int64
}

// A box is a mailbox.
type box struct {
	name, namespace    string
	maxBytes, maxDepth int64
	maxTotal           int64 // 0 = no limit
	quiet, keep        time.Duration
	refuse             bool
	awakeUntil         time.Time
	entities           map[string]*entity
	messages           map[string][]*message // of each entity, in order
	sent               map[sentID]*sent
	dead               map[int64]*letter
	nodes              map[string]int64 // their locks
	senders            map[string]**tx  // the locks of each entity's senders
	rows               int64
}

// An entity is a row of the table of entities.
type entity struct {
	name      string
	row       int64 // the order in which the rows were made
	state     string
	readyAt   time.Time
	claimedAt time.Time
	after     int64
	token     int64
	attempts  int64
	node      string
	interrupt *string
	lastError string
	lockedBy  *tx
	forgotten bool
}

// A message is a row of the table of messages.
type message struct {
	number, position int64
	id, trace        string
	sentAt           time.Time
	body             []byte
}

// A pending message belongs to a transaction that has not committed.
type pending struct {
	*message
	box    *box
	entity string
}

type sentID struct{ entity, id string }

// A sent is what the server knows about a message with an ID.
type sent struct {
	number int64
	sentAt time.Time
	done   bool
	value  []byte // nil = NULL
}

// A letter is a dead letter.
type letter struct {
	*message
	entity   string
	attempts int64
	err      string
	diedAt   time.Time
}

// lockOf returns the lock of an entity's senders.
func (b *box) lockOf(entity string) **tx {
	if b.senders[entity] == nil {
		b.senders[entity] = new(*tx)
	}
	return b.senders[entity]
}

// waiting returns the messages of an entity with greater numbers.
func (b *box) waiting(entity string, after int64) []*message {
	all := b.messages[entity]
	i, _ := slices.BinarySearchFunc(all, after+1, func(m *message, n int64) int { return cmp.Compare(m.number, n) })
	return all[i:]
}

// total returns how many messages all entities have.
func (b *box) total() (n int64) {
	for _, all := range b.messages {
		n += int64(len(all))
	}
	return n
}

// stateAt returns the state of an entity for people: one that pauses is ready later.
func (e *entity) stateAt(now time.Time) string {
	if e.state == "ready" && e.readyAt.After(now) {
		return "paused"
	}
	return e.state
}

// put adds a message in its place, and the entity's row.
func (b *box) put(name string, m *message, readyAt time.Time) *entity {
	all := b.messages[name]
	i, _ := slices.BinarySearchFunc(all, m.number, func(m *message, n int64) int { return cmp.Compare(m.number, n) })
	b.messages[name] = slices.Insert(all, i, m)
	e := b.entities[name]
	if e == nil {
		b.rows++
		e = &entity{name: name, row: b.rows, state: "ready", readyAt: readyAt, after: m.number - 1}
		b.entities[name] = e
	}
	return e
}

// take removes messages, and returns them.
func (b *box) take(name string, numbers []int64) (gone []*message) {
	b.messages[name] = slices.DeleteFunc(b.messages[name], func(m *message) bool {
		is := slices.Contains(numbers, m.number)
		if is {
			gone = append(gone, m)
		}
		return is
	})
	if len(b.messages[name]) == 0 {
		delete(b.messages, name)
	}
	return gone
}

// rest ends a turn.
func (b *box) rest(e *entity, after, attempts int64, pause time.Duration, lastError string) {
	if len(b.waiting(e.name, after)) == 0 {
		e.forgotten = true
		delete(b.entities, e.name)
		return
	}
	e.state, e.readyAt, e.after, e.attempts, e.node, e.interrupt, e.lastError = "ready", time.Now().Add(pause), after, attempts, "", nil, lastError
}

// ready returns the entities without a turn, those that have been ready for longest first.
func (b *box) ready() []*entity {
	return b.where(func(e *entity) bool { return e.state == "ready" })
}

// of returns the entities whose turns a node has.
func (b *box) of(node string) []*entity {
	return b.where(func(e *entity) bool { return e.state == "running" && e.node == node })
}

func (b *box) where(is func(*entity) bool) (all []*entity) {
	for _, e := range b.entities {
		if is(e) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entity) int { return cmp.Or(a.readyAt.Compare(b.readyAt), cmp.Compare(a.row, b.row)) })
	return all
}

// others returns the other nodes in order: those after a node, and then those before it.
func (b *box) others(node string) (all []string) {
	for n := range b.nodes {
		if n != node {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(x, y string) int {
		if (x < node) != (y < node) {
			return strings.Compare(y, x) // the greater ones first
		}
		return strings.Compare(x, y)
	})
	return all
}
