package advisory

import (
	"errors"
	"runtime"
	"time"

	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/internal/session"
)

const (
	// patience is how long a driver itself waits for an answer.
	patience = 100 * time.Millisecond
	// quiet is how often gather yields to other goroutines before it expects no more operations.
	// That takes a few microseconds if there is nothing else to do. It counts yields, not time,
	// because the clock of a testing/synctest bubble does not advance.
	quiet = 30
	// enough is the batch size at which the cost of the round trip is a small share of the total.
	enough = 64
)

// appoint chooses a driver of the connection, under mu: a caller that sleeps until its operation is
// done, or a new goroutine.
func (n *conn) appoint() {
	for q := range n.node.Callers {
		if r := requestOf(q); r.drives == nil {
			r.drives = n
			r.wakeUp()
			return
		}
	}
	n.core.wg.Go(func() {
		n.core.mu.Lock()
		defer n.core.mu.Unlock()
		n.drive(false)
	})
}

// drive executes the pending operations. It is called under mu, which it releases meanwhile. A goroutine that attends
// the connection waits for a slow answer itself, because no caller depends on it.
func (n *conn) drive(attends bool) {
	c := n.core
	if n.expected > 1 { // the other callers of the last batch are expected, too
		c.unlocked(n.gather)
	}
	batch := c.table.Take(n.node, c.present())
	c.run()
	notePending(n.node)
	if len(batch) == 0 { // nothing is pending any more
		n.retire()
		return
	}
	n.write(batch)
	c.mu.Unlock()
	err := n.session.Do(n.args, patience)
	if errors.Is(err, session.ErrPending) && attends {
		err = n.session.Do(nil, 0)
	}
	c.mu.Lock()
	if !errors.Is(err, session.ErrPending) {
		n.answer(err)
		return
	}
	n.slow.Store(true)
	c.wg.Go(func() {
		err := n.session.Do(nil, 0)
		c.mu.Lock()
		defer c.mu.Unlock()
		n.answer(err)
	})
}

// gather waits for the callers that were just served to return with their next operations, as long
// as they keep coming. A larger batch serves more callers for the price of one round trip.
func (n *conn) gather() {
	most := int32(0)
	for yields := 0; yields < quiet; yields++ {
		pending := n.pending.Load()
		if int(pending) >= n.expected || pending >= enough {
			return
		}
		if pending > most {
			most, yields = pending, 0
		}
		runtime.Gosched()
	}
}

// write converts a batch for the session, under mu.
func (n *conn) write(batch []*locktable.Op) {
	c := n.core
	c.stats.batches.Add(1)
	c.stats.operations.Add(int64(len(batch)))
	n.ops, n.args = n.ops[:0], n.args[:0]
	for _, o := range batch {
		n.ops = append(n.ops, session.Op{
			Tag: o.Tag, Mode: o.Mode, Any: o.Any, Turnstile: o.Turnstile,
			Unlock: o.Kind == locktable.Unlock, Pass: o.Kind == locktable.Pass, Ping: o.Kind == locktable.Ping,
		})
	}
	for i := range n.ops {
		n.args = append(n.args, &n.ops[i])
	}
}

// answer records the server's answer to the batch, under mu.
func (n *conn) answer(lost error) {
	c := n.core
	n.slow.Store(false)
	n.answered(lost)
	n.replies = n.replies[:0]
	for i := range n.ops {
		n.replies = append(n.replies, locktable.Reply{Held: n.ops[i].Held, Index: n.ops[i].Index, Err: n.ops[i].Err})
	}
	n.expected = len(n.ops) + n.node.Pending()
	c.table.Answer(n.node, c.present(), n.replies, lost)
	c.run()
	notePending(n.node)
	n.retire()
}
