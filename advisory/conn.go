package advisory

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// A conn is one connection, and the keys that live on it or are asked on it: up to
// Config.LocksPerConn, and the further ones of a Lock on several keys.
//
// Operations that come while a statement is under way go out together in the next. The
// goroutine that finds the connection with nothing to do drives it; when its statement
// is answered, one of those who wait drives the next. A single operation therefore pays
// for no other goroutine, and is the plain statement.
type conn struct {
	core    *core
	session session.Session    // nil while it is being made
	pid     uint32             // of the session
	cancel  context.CancelFunc // ends that

	// guarded by core.mu
	busy    bool               // somebody drives it, or waits on it
	inRoom  node[conn]         // in core.room
	lent    bool               // for a question who holds a lock
	waiter  *key               // that a slice of waiting is under way for
	yields  bool               // it is asked to leave the connection to a key that has none
	pending []*op              // in order
	keys    list[key]          // that live on it, are asked or waited for
	locks   int                // in keys
	since   time.Time          // of the last grant
	ended   *session.LostError // nil = it lives
	quit    chan struct{}      // closed when it has ended and nobody drives it

	timer        *time.Timer
	rounds, seen uint64 // round trips, and those that the timer has seen
	armed        bool   // the timer runs
	watched      bool   // the session is under watch
	proven       bool   // the server answered at least once

	slow atomic.Bool  // its statement takes long
	more atomic.Int32 // len(pending), for who looks without mu

	// of who drives
	crowd int // who waited for the last batch, or was in it
	batch []*op
	args  []*session.Op
}

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

// push has an operation done, under mu, by a goroutine that it appoints if none drives.
func (n *conn) push(o *op) {
	if n.ended != nil {
		o.done(n.ended)
		return
	}
	n.add(o)
	switch {
	case n.session == nil: // when it is made
	case !n.busy:
		n.busy = true
		n.appoint()
	case n.waiter != nil:
		n.waiter.stir()
	}
}

// add is push to a connection that is busy, for who has it, under mu.
func (n *conn) add(o *op) {
	n.pending = append(n.pending, o)
	n.more.Store(int32(len(n.pending)))
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

// passing reports whether the question about the key's turnstile is under way, under mu.
func (n *conn) passing(k *key) bool {
	for _, ops := range [][]*op{n.pending, n.batch} {
		for _, o := range ops {
			if o.pass && o.key == k {
				return true
			}
		}
	}
	return false
}

// appoint chooses who drives the connection, which is busy, under mu.
func (n *conn) appoint() {
	for _, o := range n.pending {
		if o.by != nil && o.by.lead == nil && !o.by.settled {
			o.by.lead = n
			o.by.rouse()
			return
		}
	}
	n.core.wg.Go(func() {
		n.core.mu.Lock()
		defer n.core.mu.Unlock()
		n.drive()
	})
}

// drive does what is pending, and appoints who goes on. It is called under mu, which it
// gives up meanwhile.
func (n *conn) drive() {
	c := n.core
	if n.crowd > 1 { // the others of the last batch come, too
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
		if int(more) >= n.crowd || more >= enough {
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
		err = n.ended
	case n.ended != nil: // meanwhile, by another goroutine
		err = n.ended
	case !n.proven:
		n.proven = true
		n.core.redial = backoff{}
	}
	batch := n.batch
	n.crowd = len(batch) + len(n.pending)
	n.batch = nil
	for _, o := range batch {
		o.done(err)
	}
	clear(batch)
	n.batch = batch[:0]
}

// done books the end of an operation, under mu. After an error nothing is known of it,
// and the connection is gone.
func (o *op) done(err error) {
	switch k := o.key; {
	case o.pass:
		k.pass(err == nil && o.Held, err)
	case k != nil && o.Unlock:
		k.left(err)
	case k != nil:
		k.tried(err)
	case o.by != nil:
		o.by.answered(err)
	}
}

// next lets somebody go on with what is pending, or the connection rest, under mu.
func (n *conn) next() {
	switch {
	case n.waiter != nil: // who waits on it goes on
	case n.ended != nil:
		close(n.quit)
	case len(n.pending) > 0:
		n.appoint()
	default:
		n.busy = false
		n.rest()
	}
}

// rest is for a connection that may have nothing to do now, or room, under mu: who needs
// one gets it, and after a while it is watched or given back.
func (n *conn) rest() {
	if !n.busy && !n.armed && n.ended == nil && n.session != nil {
		n.armed = true
		n.timer.Reset(idleAfter)
	}
	if n.place() {
		n.core.serve()
	}
}

// place keeps core.room right, under mu, and reports whether the connection has just come
// in: one that waits takes no key, and a key that shall have a connection of its own
// waits until that has nothing to do.
func (n *conn) place() bool {
	c := n.core
	room := n.ended == nil && n.waiter == nil && !n.lent && n.locks < c.config.LocksPerConn
	if c.dedicated() {
		room = room && !n.busy && n.session != nil
	}
	if room == n.inRoom.in {
		return false
	}
	if !room {
		c.room.remove(&n.inRoom)
		return false
	}
	c.room.push(&n.inRoom, n)
	return true
}

// tick comes a while after the connection was used. One that did nothing since is
// given back if nothing is held on it, and watched otherwise.
func (n *conn) tick() {
	c := n.core
	c.mu.Lock()
	switch {
	case n.busy || n.ended != nil: // it is armed again when it is not
		n.armed = false
	case n.rounds != n.seen:
		n.seen = n.rounds
		n.timer.Reset(idleAfter)
	case n.locks > 0:
		n.armed = false
		n.watchNow()
	default:
		n.leave(false)
		c.mu.Unlock()
		n.session.Close(true)
		c.wg.Done()
		return
	}
	c.mu.Unlock()
}

// watchNow has the session watched at once, under mu, unless something else would find
// out that it ended.
func (n *conn) watchNow() {
	if n.busy || n.watched || n.ended != nil {
		return
	}
	n.watched = true
	n.session.Watch(func(err error) {
		n.core.mu.Lock()
		defer n.core.mu.Unlock()
		n.end(err)
	})
}
