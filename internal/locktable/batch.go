package locktable

import "slices"

// An Op is one operation to send on a connection.
type Op struct {
	Kind      OpKind
	Tag       Tag
	Mode      Mode
	Any       []Tag // of a Try: one of these is taken, in exclusive mode, instead of Tag
	Turnstile Tag   // must be open, or nothing is tried; zero = none
	By        *Request
	key       *Key // nil = none
}

// An OpKind is the kind of an operation at the server.
type OpKind uint8

// The kinds of operations.
const (
	Try    OpKind = iota // takes the lock if it is free
	Unlock               // releases it
	Pass                 // asks whether the turnstile is open
	Ping                 // asks whether the session lives
)

// A Reply is the answer to an operation.
type Reply struct {
	Held  bool  // the try succeeded, or the turnstile is open
	Index int   // of Any
	Err   error // why the try was not made
}

// maxBatch bounds the duration of a batch, and the space in the socket's buffers that it needs.
const maxBatch = 1024

// droppable is the largest number of pending operations in which drop searches.
const droppable = 64

// push queues an operation for the server.
func (n *Conn) push(o *Op) {
	if !n.alive() {
		o.fail(n.lost)
		return
	}
	n.pending = append(n.pending, o)
	switch {
	case n.phase == Idle:
		n.phase = Busy
		n.table.do(Command{Kind: Drive, Conn: n})
	case n.waiter != nil:
		n.table.do(Command{Kind: Interrupt, Conn: n})
	}
}

// Take begins the next batch: the carrier sends its operations to the server, and calls Answer. If there is no
// operation, Take returns nil and passes the connection on.
func (t *Table) Take(n *Conn, now Instant) []*Op {
	if !t.begin(EventTake, now, n, nil, nil) {
		return nil
	}
	defer t.guard()
	if n.phase != Busy || len(n.pending) == 0 {
		t.pass(n)
		return nil
	}
	if len(n.batch) > 0 {
		panic(BugError{"two batches are under way on one connection"})
	}
	count := min(len(n.pending), maxBatch)
	n.batch = append(n.batch[:0], n.pending[:count]...)
	rest := copy(n.pending, n.pending[count:])
	clear(n.pending[rest:])
	n.pending = n.pending[:rest]
	return n.batch
}

// Answer handles the answer to the batch that Take began, and passes the connection on. If the session ended, lost is
// not nil, and the replies do not count.
func (t *Table) Answer(n *Conn, now Instant, replies []Reply, lost error) {
	if t.record != nil {
		t.record(Event{Kind: EventAnswer, At: now, Conn: n, Replies: replies, Err: lost})
	}
	defer t.guard()
	if t.broken != nil {
		return
	}
	t.now = now
	batch := n.batch
	n.batch = nil
	if lost != nil {
		t.end(n, lost)
	}
	for i, o := range batch {
		if n.phase == Ended { // perhaps by another goroutine
			o.fail(n.lost)
			continue
		}
		o.answer(replies[i])
	}
	clear(batch)
	n.batch = batch[:0]
	t.pass(n)
}

// answer handles the server's answer.
func (o *Op) answer(reply Reply) {
	switch k := o.key; {
	case o.Kind == Pass:
		k.passed(reply.Held)
	case o.Kind == Unlock && k != nil:
		k.returned(nil)
	case o.Kind == Try && reply.Held && k.pool:
		k.grantSlot(o.Any[reply.Index])
	case o.Kind == Try && reply.Held:
		k.grant()
	case o.Kind == Try:
		k.denied(reply.Err)
	case o.By != nil:
		o.By.answered(nil)
	}
}

// fail fails an operation whose connection died: its outcome is unknown.
func (o *Op) fail(lost error) {
	switch k := o.key; {
	case o.Kind == Pass: // the holders receive the loss
	case o.Kind == Unlock && k != nil:
		k.returned(lost)
	case k != nil:
		k.dropped(lost)
	case o.By != nil:
		o.By.answered(lost)
	}
}

// sent reports whether an operation is in the batch that is under way.
func (n *Conn) sent(o *Op) bool { return slices.Contains(n.batch, o) }

// drop withdraws an operation that is not in a batch yet.
func (n *Conn) drop(o *Op) bool {
	if len(n.pending) > droppable { // it will be answered
		return false
	}
	for i, p := range n.pending {
		if p == o {
			n.pending = append(n.pending[:i], n.pending[i+1:]...)
			if len(n.pending) == 0 && n.phase == Making && n.table.dedicated() { // with shared connections, others will come
				n.table.do(Command{Kind: Abort, Conn: n})
			}
			return true
		}
	}
	return false
}
