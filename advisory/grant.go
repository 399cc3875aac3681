package advisory

import (
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// grant gives the lock, which the server has just granted, to the first request and to
// readers that stand right behind it, under mu. If nobody wants it any more, at least
// not in this mode, it goes back.
func (k *key) grant() {
	now := k.core.now()
	k.phase, k.at, k.passed, k.shut = held, now, now, false
	k.handOvers = 0
	k.passing = false // of before, on a connection that was lost
	k.losses, k.loss, k.polls = 0, nil, 0
	k.conn.since = now
	r := k.requests.peek()
	if r == nil || r.mode != k.mode || k.core.closed {
		k.giveBack(nil)
		return
	}
	k.give(r, false, now)
	k.advance()
	if k.tries {
		k.refuseTries()
	}
}

// give makes the lock of the first request a user of the key, under mu.
func (k *key) give(r *request, handOver bool, now time.Time) {
	l := r.lock
	k.requests.remove(&r.inQueue)
	k.waiting--
	k.holders = append(k.holders, l)
	l.addKey(k)
	if !r.part {
		l.begin(now)
	}
	if r.handOver = handOver; handOver {
		k.handOvers++
	}
	r.settle(nil)
}

// successor returns the request that an exclusive lock may pass to when its user leaves,
// under mu: never while its connection is in doubt or may have ended, and not beyond the
// budget, so that other processes get their turn.
func (k *key) successor(now time.Time) *request {
	c, r := k.core, k.requests.peek()
	if r == nil || k.mode != session.Exclusive || r.mode != session.Exclusive || r.part ||
		k.conn.locks > c.config.LocksPerConn || now.Sub(k.at) >= c.config.HandOverBudget || !c.verified(k.conn.session, now) {
		return nil
	}
	return r
}

// giveBack returns the lock to the server, under mu. by is who waits for that, or nil.
func (k *key) giveBack(by *request) {
	if k.phase != held {
		panic("BUG: a lock is given back that is not held")
	}
	k.phase = leaving
	k.holders = k.room[:0]
	k.op = op{key: k, by: by, Op: session.Op{Tag: k.tag, Mode: k.mode, Unlock: true}}
	k.conn.push(&k.op)
}

// left is the answer to an unlock, under mu.
func (k *key) left(err error) {
	if r := k.op.by; r != nil {
		k.op.by = nil
		defer r.answered(err)
	}
	k.phase = free
	c := k.core
	if p := c.pools[k.semaphore]; p != nil && p.phase == waiting {
		p.wakeUp() // who looks for a slot need not wait for its next look
	}
	if err != nil || c.starved.peek() != nil || k.conn.waiter != nil || k.conn.locks > c.config.LocksPerConn {
		k.move(nil) // else who is next goes on with the same connection
	}
	k.advance()
}
