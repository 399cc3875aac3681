package advisory

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// An op is one operation on its way through a connection.
type op struct {
	session.Op
	key  *key     // nil = none
	by   *request // who sleeps until it is done, and can drive; nil = nobody
	pass bool     // whether the key's turnstile is open
	sent bool
}

const (
	// patience is how long who drives waits for an answer itself.
	patience = 100 * time.Millisecond
	// idleAfter is how long a connection does nothing before it is watched, or given back
	// if nothing is held on it. No operation pays for a timer: it runs while there is
	// traffic.
	idleAfter = 5 * time.Millisecond
	// maxBatch bounds the time that a batch takes, and the room in the socket's buffers
	// that it needs.
	maxBatch = 1024
	// quiet is how often who gathers lets others run before nobody is expected any
	// more: a few microseconds, if there is nothing else to do. It is no time, because
	// time stands still in a testing/synctest bubble.
	quiet = 30
	// enough is when the price of the round trip is a small share of all.
	enough = 64
)

var (
	errLeft    = errors.New("no answer from the server in time")
	errNoReply = &session.LostError{Cause: errLeft}
)

// grace is for how long a caller whose time is over waits for an answer that is on its
// way: one that comes says more than a timeout.
const grace = 200 * time.Millisecond

// push has an operation done, under mu, by a goroutine that it appoints if none drives.
func (n *conn) push(o *op) {
	if n.ended != nil {
		o.fail(n.ended)
		return
	}
	n.add(o)
	switch {
	case n.session == nil: // when it is made
	case !n.busy:
		n.busy = true
		n.appoint()
	case n.waiter != nil:
		n.waiter.interrupt()
	}
}

// add is push to a connection that is busy, for who has it, under mu.
func (n *conn) add(o *op) {
	n.pending = append(n.pending, o)
	n.more.Store(int32(len(n.pending)))
}

// await returns true when the request is settled, and false when it was withdrawn because
// its context or its time ended. It is called under mu, and unlocks it.
func (c *core) await(ctx context.Context, r *request) (settled bool) {
	canceled := false
	for !r.settled {
		if n := r.drives; n != nil {
			r.drives = nil
			n.drive()
			continue
		}
		if r.waits {
			r.waits = false
			c.mu.Unlock()
			c.traceWait(ctx, r)
			c.mu.Lock()
			continue
		}
		if canceled || r.deadlock != nil || r.expired && !c.answerIsDue(r) {
			if r.key != nil {
				r.err = c.withdraw(r)
			}
			r.settled = true // nobody is to appoint it
			if n := r.drives; n != nil {
				r.drives = nil
				n.appoint()
			}
			c.mu.Unlock()
			return false
		}
		canceled = c.sleep(ctx, r)
	}
	if n := r.drives; n != nil { // it was settled in the same instant
		r.drives = nil
		n.appoint()
	}
	c.mu.Unlock()
	return true
}

// sleep waits until the request is woken, under mu, which it gives up meanwhile, and
// reports whether the context ended instead.
func (c *core) sleep(ctx context.Context, r *request) (canceled bool) {
	if r.wake == nil {
		r.wake = make(chan struct{}, 1)
	}
	c.expect(r)
	r.asleep = true
	c.mu.Unlock()
	if r.key != nil {
		c.stats.waiting.Add(1)
		defer c.stats.waiting.Add(-1)
	}
	if ctx.Done() == nil {
		<-r.wake
		c.mu.Lock()
		return false
	}
	select {
	case <-r.wake:
		c.mu.Lock()
		return false
	case <-ctx.Done():
	}
	c.mu.Lock()
	if !r.asleep {
		<-r.wake
	}
	r.asleep = false
	return true
}

// answerIsDue reports whether the answer to the request's own try is on its way, once, and
// prolongs its time for that, under mu.
func (c *core) answerIsDue(r *request) bool {
	k := r.key
	if r.prolonged || k == nil || k.phase != asking || !k.op.sent || k.requests.peek() != r || k.conn.slow.Load() {
		return false
	}
	r.prolonged, r.expired = true, false
	r.deadline = time.Now().Add(grace)
	return true
}

// drive does what is pending, and appoints who goes on. It is called under mu, which it
// gives up meanwhile.
func (n *conn) drive() {
	c := n.core
	if n.expected > 1 { // the others of the last batch come, too
		c.mu.Unlock()
		n.gather()
		c.mu.Lock()
	}
	if n.ended != nil || len(n.pending) == 0 { // meanwhile
		n.next()
		return
	}
	n.take()
	c.mu.Unlock()
	err := n.session.Do(n.args, patience)
	c.mu.Lock()
	if errors.Is(err, session.ErrPending) && n.waiter != nil { // nobody else waits for this goroutine
		c.mu.Unlock()
		err = n.session.Do(nil, 0)
		c.mu.Lock()
	}
	if errors.Is(err, session.ErrPending) {
		n.slow.Store(true)
		c.wg.Go(func() {
			err := n.session.Do(nil, 0)
			c.mu.Lock()
			defer c.mu.Unlock()
			n.settle(err)
			n.next()
		})
		return
	}
	n.settle(err)
	n.next()
}

// gather lets those who were just served come back with their next operations,
// while they do: a larger batch serves more for the price of one round trip.
func (n *conn) gather() {
	most := int32(0)
	for yields := 0; yields < quiet; yields++ {
		more := n.more.Load()
		if int(more) >= n.expected || more >= enough {
			return
		}
		if more > most {
			most, yields = more, 0
		}
		runtime.Gosched()
	}
}

// take makes what is pending the batch, under mu.
func (n *conn) take() {
	count := min(len(n.pending), maxBatch)
	n.batch, n.args = append(n.batch[:0], n.pending[:count]...), n.args[:0]
	n.core.stats.batches.Add(1)
	n.core.stats.operations.Add(int64(count))
	rest := copy(n.pending, n.pending[count:])
	clear(n.pending[rest:])
	n.pending = n.pending[:rest]
	n.more.Store(int32(rest))
	for _, o := range n.batch {
		o.sent = true
		n.args = append(n.args, &o.Op)
	}
}

// settle books what the server answered to the batch, under mu.
func (n *conn) settle(err error) {
	n.slow.Store(false)
	n.rounds++
	n.watched = false // the statement has ended the watch
	switch {
	case err != nil:
		n.end(err)
	case n.ended == nil && !n.proven:
		n.proven = true
		n.core.redial = backoff{}
	}
	batch := n.batch
	n.expected = len(batch) + len(n.pending)
	n.batch = nil
	for _, o := range batch {
		switch k := o.key; {
		case n.ended != nil: // perhaps by another goroutine
			o.fail(n.ended)
		case o.pass:
			k.pass(o.Held)
		case k != nil && o.Unlock:
			k.left(nil)
		case k != nil && o.Held && k.pool:
			k.grantSlot(o.Any[o.Index])
		case k != nil && o.Held:
			k.grant()
		case k != nil:
			k.denied(o.Err)
		case o.by != nil:
			o.by.answered(nil)
		}
	}
	clear(batch)
	n.batch = batch[:0]
}

// fail books that an operation got no answer, under mu: nothing is known of it, and the
// connection is gone.
func (o *op) fail(err error) {
	switch k := o.key; {
	case o.pass: // the loss of the lock is told to its users
		k.passing = false
	case k != nil && o.Unlock:
		k.left(err)
	case k != nil:
		k.lost(err)
	case o.by != nil:
		o.by.answered(err)
	}
}

// next lets somebody go on with what is pending, or the connection rest, under mu.
func (n *conn) next() {
	switch {
	case n.waiter != nil: // who waits on it goes on
	case n.session == nil: // it is being made, and goes on with what is pending then
		n.rest()
	case n.ended != nil:
		close(n.quit)
	case len(n.pending) > 0:
		n.appoint()
	default:
		n.busy = false
		n.rest()
	}
}

// appoint chooses who drives the connection, which is busy, under mu.
func (n *conn) appoint() {
	for _, o := range n.pending {
		if o.by != nil && o.by.drives == nil && !o.by.settled {
			o.by.drives = n
			o.by.wakeUp()
			return
		}
	}
	n.core.wg.Go(func() {
		n.core.mu.Lock()
		defer n.core.mu.Unlock()
		n.drive()
	})
}

// drop takes an operation back that was not sent, under mu.
func (n *conn) drop(o *op) bool {
	if o.sent || len(n.pending) > enough { // it will be answered
		return false
	}
	for i, p := range n.pending {
		if p == o {
			n.pending = append(n.pending[:i], n.pending[i+1:]...)
			n.more.Store(int32(len(n.pending)))
			if len(n.pending) == 0 && n.session == nil && n.core.dedicated() { // else others will come
				n.cancel()
			}
			return true
		}
	}
	return false
}
