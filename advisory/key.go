package advisory

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A key is what this process knows of one lock: who holds it here, who waits here, and
// what is asked of the server about it. It exists while there is any of these. All
// fields are guarded by core.mu.
//
// Why two holders of one process never meet on one session: PostgreSQL lets a session in
// again to a lock that it has (manual, section 13.3.5), so no session may be asked for one
// that it has. A process therefore has a lock once at the server at most, whoever uses it
// here, and one operation about it under way at most, because there is one key for each tag,
// and only ask, which begins in the phase free, and the wait that follows its refusal
// request the lock. A key leaves that phase there and comes back to it when the server has said
// that the lock was not granted or is given back, or when its session has ended.
type key struct {
	core      *core
	tag       namespace.Tag
	semaphore namespace.Tag // of which it is a slot; zero = none
	pool      bool          // of a semaphore: what is asked for is one of its slots, which is then a key of its own
	phase     phase
	slots     uint16 // of its semaphore, if it is a slot, as far as its user knows
	handOvers uint32 // since the server granted it

	conn    *conn        // that the lock lives on, or is asked or waited for on; nil = none
	inConn  node[key]    // in conn.keys
	inQueue node[key]    // in core.starved or core.polled
	mode    session.Mode // in which it is held, asked or waited for
	at      time.Time    // when the server granted it
	passed  time.Time    // when the turnstile was last found open, with the lock in shared mode
	shut    bool         // the turnstile was not open: nobody joins any more
	passing bool         // the question whether it is open is under way

	holders  []*Lock // several only if all are shared
	requests list[request]
	waiting  int  // requests
	tries    bool // of which some stand behind others and do not wait for more than a connection
	op       op   // the one that is under way

	gateTag      namespace.Tag // its turnstile, when it was asked for
	hasTurnstile bool          // that is held on conn, in mode
	woken        chan struct{} // ends a pause of who waits for it
	loss         error         // the last loss of a connection that it was asked on
	losses       int           // since it was last granted
	polls        int           // while it was polled, or its turnstile was shut

	room [1]*Lock // for the usual user
}

// A phase is what becomes of a key.
type phase uint8

const (
	free    phase = iota // nothing
	asking               // a try is under way, or will be when its connection is there
	starved              // there is no connection for it
	pausing              // connections died under it, and it is not asked for a moment
	waiting              // somebody else holds it, and a goroutine waits for it
	held                 // by users of this process
	leaving              // it is being given back
)

// key returns what is known of a tag, under mu.
func (c *core) key(tag namespace.Tag, pool bool) *key {
	keys := c.keys
	if pool {
		keys = c.pools
	}
	if k := keys[tag]; k != nil {
		return k
	}
	var k *key
	if last := len(c.spare) - 1; last >= 0 {
		k, c.spare = c.spare[last], c.spare[:last]
	} else {
		k = new(key)
	}
	k.core, k.tag, k.pool = c, tag, pool
	k.holders = k.room[:0]
	keys[tag] = k
	return k
}

// advance does what can be done for those who wait, under mu: when something changed.
func (k *key) advance() {
	for {
		r := k.requests.peek()
		switch {
		case k.phase == held && r != nil && !k.conflicts(r.mode):
			if !k.join(r, k.core.now()) {
				return
			}
			continue
		case k.phase == held && r != nil && r.try:
			k.refuse(r, errTaken)
			continue
		case k.phase != free:
			return
		case r == nil || k.core.closed:
			k.move(nil)
			k.tidy()
			return
		}
		if err := k.ask(r); err != nil {
			k.refuse(r, err)
			continue
		}
		return
	}
}

// ask tries the key for the first request, under mu: now, or when there is a connection
// for it. After an error nothing is under way.
//
// A key stays on the connection that it has, and those of one Lock go to one. Any other goes to
// the last connection with room, or to a new one.
func (k *key) ask(r *request) error {
	c, n := k.core, k.conn
	if k.phase != free { // a session would be let in again to what it has
		panic("BUG: a lock is asked for that is held, or asked for already")
	}
	if c.limit > 0 && c.used >= c.limit && n == nil {
		return &session.CapError{Locks: c.used, MaxLocks: c.limit, LockTable: c.source.Stats().LockTable}
	}
	if own := r.lock.own; own != nil && own.ended == nil {
		n = own
	}
	if n == nil {
		n = c.room.top()
	}
	switch {
	case n != nil:
	case len(c.conns) < c.config.MaxConns:
		n = c.dial()
	case !c.yield() && r.nested: // those who hold the connections may be waiting for its locks
		return errNoConn
	default:
		k.phase = starved
		c.starved.push(&k.inQueue, k)
		return nil
	}
	k.move(n)
	if r.part {
		r.lock.own = n
	}
	k.mode = r.mode
	k.op = op{key: k, by: r, Op: session.Op{Tag: k.tag, Mode: r.mode}}
	switch {
	case k.pool:
		k.op.Any, k.op.Turnstile = c.freeSlots(r), k.turnstile()
		if len(k.op.Any) == 0 { // this process has them all
			k.wait()
			return nil
		}
	case r.mode == session.Shared:
		k.op.Turnstile = k.turnstile()
	}
	k.phase = asking
	n.push(&k.op)
	return nil
}

// move makes n the connection of the key, nil for none, under mu.
func (k *key) move(n *conn) {
	if k.conn == n {
		return
	}
	if o := k.conn; o != nil {
		o.keys.remove(&k.inConn)
		o.locks--
		k.core.used--
		defer o.rest()
	}
	if k.conn = n; n != nil {
		n.keys.push(&k.inConn, k)
		n.locks++
		k.core.used++
		n.place()
	}
}

// conflicts reports whether a lock in this mode cannot exist beside what this process
// holds.
func (k *key) conflicts(mode session.Mode) bool {
	return k.phase == held && (mode == session.Exclusive || k.mode == session.Exclusive)
}

// denied is for a key that was not granted, under mu: because somebody else holds it, or
// for the server's reason.
func (k *key) denied(reason error) {
	if reason == nil {
		k.refuseTries()
	} else if r := k.requests.peek(); r != nil {
		k.refuse(r, reason)
	}
	r := k.requests.peek()
	if reason != nil || r == nil || k.core.closed {
		k.phase = free
		k.move(nil)
		k.advance()
		return
	}
	r.tell(0)
	k.wait()
}

// refuseTries is for a key that somebody turned out to hold, under mu.
func (k *key) refuseTries() {
	for r := range k.requests.all {
		if r.try {
			k.refuse(r, errTaken)
		} else if !k.tries {
			break // only the first can be one
		}
	}
	k.tries = false
}

// lost is for a key whose connection ended before it was granted, under mu. All that
// stood idle end when a server restarts, so another one is asked; more than that many
// are reported, and in between the server is not stormed.
func (k *key) lost(err error) {
	k.phase, k.hasTurnstile = free, false
	k.move(nil)
	k.losses, k.loss = k.losses+1, err
	switch {
	case k.waiting == 0 || k.core.closed:
	case k.losses > k.core.config.MaxConns+3:
		k.failAll(err)
	case k.losses > 2:
		k.pause()
		return
	}
	k.advance()
}

// pause asks for the key again in a while, under mu.
func (k *key) pause() {
	c := k.core
	k.phase = pausing
	c.wg.Go(func() {
		select {
		case <-c.ctx.Done():
		case <-time.After(50*time.Millisecond + rand.N(50*time.Millisecond)):
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		k.phase = free
		k.advance()
	})
}

// failAll ends all requests that wait now, under mu.
func (k *key) failAll(err error) {
	for r := range k.requests.all {
		k.refuse(r, err)
	}
	k.abandon()
}

// refuse ends the first request with an error, under mu.
func (k *key) refuse(r *request, err error) {
	k.requests.remove(&r.inQueue)
	k.waiting--
	r.settle(err)
}

// abandon ends what is under way for a key that nobody wants any more, as far as it can
// be ended, under mu.
func (k *key) abandon() {
	c := k.core
	switch k.phase {
	case starved:
		c.starved.remove(&k.inQueue)
		k.phase = free
	case waiting:
		if c.polled.remove(&k.inQueue) {
			k.phase = free
			k.move(nil)
			break
		}
		k.interrupt()
	case asking:
		if k.conn.drop(&k.op) {
			k.phase = free
			k.move(nil)
		}
	}
}

// maxSpare bounds what is kept of a burst.
const maxSpare = 1024

// tidy forgets a key that nobody needs, under mu.
func (k *key) tidy() {
	if k.phase != free || k.waiting > 0 {
		return
	}
	c := k.core
	keys := c.keys
	if k.pool {
		keys = c.pools
	}
	if keys[k.tag] != k {
		return
	}
	delete(keys, k.tag)
	if len(c.spare) < maxSpare {
		*k = key{}
		c.spare = append(c.spare, k)
	}
}

// reason says why a request for the key had no connection, or no answer; nil = somebody
// holds it.
func (k *key) reason() error {
	switch {
	case k.phase == starved, k.phase == pausing:
		return cmp.Or(k.loss, errNoConn)
	case k.phase == asking && k.conn.session == nil:
		return cmp.Or(k.loss, context.DeadlineExceeded)
	case k.phase == asking:
		return errNoReply
	}
	return nil
}
