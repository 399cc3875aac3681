package advisory

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/multiplex"
	"github.com/pglatch/pglatch/internal/session"
)

// A campaign is the one attempt of this process to get a key from the server, for
// whoever is first in the queue when it succeeds: a waiter that leaves does not
// end it while another stands behind. One goroutine at a time drives it.
type campaign struct {
	core  *core
	queue *queue

	own     session.Session // of the request that it is for; nil = any will do
	session session.Session // nil before it has one; written under core.mu
	tried   bool            // the session has tried once and waits in slices now
	losses  int             // sessions that died under it
	dialing atomic.Bool     // it has its place in the pool, and no session yet

	// guarded by core.mu
	stopped bool
	loss    error              // the last death of a session
	ctx     context.Context    // made by run; ends with stop
	cancel  context.CancelFunc // of ctx
	ended   chan struct{}      // made when asked for; closed at the end
}

// begin starts a campaign, under mu, if the first request needs one and none is
// under way. The caller must have it driven, by first or run.
func (c *core) begin(q *queue) *campaign {
	r := q.first()
	if r == nil || !q.compatible(r.mode) {
		return nil
	}
	return c.claim(q, r.own, r.own)
}

// claim makes a campaign with a session, under mu, or returns nil if one is under
// way. While it lasts, newcomers queue behind it.
func (c *core) claim(q *queue, own, s session.Session) *campaign {
	if q.campaign != nil || c.closed {
		return nil
	}
	if s == nil {
		s = c.attach(q)
	}
	k := c.spareCampaign()
	*k = campaign{core: c, queue: q, own: own, session: s}
	q.campaign = k
	c.wg.Add(1) // until endLocked
	return k
}

// spareCampaign returns the room for a campaign, under mu: nobody uses one that has
// ended.
func (c *core) spareCampaign() *campaign {
	last := len(c.spare) - 1
	if last < 0 {
		return new(campaign)
	}
	k := c.spare[last]
	c.spare = c.spare[:last]
	return k
}

// maxSpare bounds what is kept of a burst.
const maxSpare = 1024

// proceed starts a campaign for those who wait, under mu, if one is due.
func (c *core) proceed(q *queue) {
	if k := c.begin(q); k != nil {
		go k.run()
	}
}

// stop ends the campaign soon, under mu. One that wins nevertheless gives the
// lock back.
func (k *campaign) stop() {
	k.stopped = true
	if k.cancel != nil {
		k.cancel()
	}
	if k.session != nil {
		k.session.Interrupt()
	}
}

// first makes the first attempt on the goroutine of the request that began the
// campaign, so that a short critical section pays for no other goroutine. What
// it cannot finish goes on in the background. It reports whether it settled the
// request.
func (k *campaign) first(ctx context.Context, r *request) bool {
	taken := k.session == nil
	if taken {
		s, err := k.take(ctx, r.deadline, r.nested)
		if err != nil {
			k.refuse(r, err)
			k.end()
			return false
		}
		k.hold(s)
	}
	held, err := k.firstTry(ctx, r, taken)
	k.tried = true
	switch {
	case errors.Is(err, ErrLost) && k.own == nil && ctx.Err() == nil:
		k.lost(err) // it died in the pool, as all do when the server restarts: go on with another
		go k.run()
	case errors.Is(err, session.ErrNoSession) && !r.try: // a wait finds one
		k.core.traceWait(ctx, r, 0)
		go k.run()
	case err != nil:
		k.refuse(r, err)
		k.end()
	case held:
		if k.win(r.mode) {
			return r.settled // by win: nobody else writes it now
		}
		go k.run()
	case r.try:
		k.refuse(r, k.core.heldBySession(k.session, r))
		k.finishOrRun()
	default:
		k.core.traceWait(ctx, r, 0)
		go k.run()
	}
	return false
}

// firstTry is a try in which neither a caller who leaves nor one whose time is over
// waits for a dead network. late: it may have waited before.
func (k *campaign) firstTry(ctx context.Context, r *request, late bool) (bool, error) {
	if v, ok := k.session.(*multiplex.Session); ok {
		return v.TryUntil(ctx, r.deadline, k.queue.tag, r.mode)
	}
	left := r.deadline.Sub(r.start) // it has just begun
	if late || k.own != nil {
		left = time.Until(r.deadline)
	}
	defer r.hurries(ctx, k.session, left)()
	return k.session.Try(k.queue.tag, r.mode)
}

// run campaigns until the first in the queue has the lock or nobody waits.
func (k *campaign) run() {
	k.core.mu.Lock()
	k.ctx, k.cancel = context.WithCancel(k.core.ctx)
	k.core.mu.Unlock()
	defer k.cancel()
	for {
		r := k.next()
		if r == nil {
			k.end()
			return
		}
		if k.session == nil && !k.connect(r) {
			continue
		}
		held, err := k.attempt(r)
		switch {
		case errors.Is(err, session.ErrNoSession) && !r.try: // a wait finds one
		case errors.Is(err, session.ErrNoSession):
			k.refuse(r, err)
		case errors.Is(err, ErrLost) && k.own == nil:
			k.lost(err)
		case err != nil && k.own != nil:
			k.refuse(r, err)
		case err != nil:
			k.failAll(err)
		case !held && r.try: // its first attempt met a dead session
			k.refuse(r, k.core.heldBySession(k.session, r))
		case held && k.win(r.mode):
			return
		}
	}
}

// next returns the request to campaign for, or nil if there is none.
func (k *campaign) next() *request {
	k.core.mu.Lock()
	defer k.core.mu.Unlock()
	r := k.wanted()
	if r != nil {
		r.known = true
	}
	return r
}

// wanted is next, under mu.
func (k *campaign) wanted() *request {
	r := k.queue.first()
	if r == nil || r.own != k.own || k.stopped || !k.queue.compatible(r.mode) {
		return nil
	}
	return r
}

// connect gets a session. A nested request alone may not wait for one; an
// unreachable server fails everybody.
func (k *campaign) connect(r *request) bool {
	s, err := k.take(k.ctx, time.Time{}, r.nested)
	switch {
	case err == nil:
		k.hold(s)
		return true
	case k.ctx.Err() != nil: // nobody waits
	case errors.Is(err, errNoSlot):
		k.refuse(r, err)
	default:
		k.failAll(err)
	}
	return false
}

// take is takeSession, and notes what it waits for.
func (k *campaign) take(ctx context.Context, deadline time.Time, nested bool) (session.Session, error) {
	k.dialing.Store(false)
	if err := k.core.takeSlot(ctx, deadline, nested); err != nil {
		return nil, err
	}
	k.dialing.Store(true)
	return k.core.inSlot(ctx, k.queue.tag, deadline)
}

// attempt tries once and then waits in slices.
func (k *campaign) attempt(r *request) (held bool, err error) {
	if !k.tried {
		k.tried = true
		return k.session.Try(k.queue.tag, r.mode)
	}
	limit := NoTimeout
	if !r.deadline.IsZero() {
		limit = time.Until(r.deadline)
	}
	k.core.stats.slices.Add(1)
	return k.session.Wait(k.queue.tag, r.mode, limit)
}

// win gives the server's lock to the first request, and a shared one to those
// readers that stand right behind it. false: nobody wants it, at least not in
// this mode; it was given back and the campaign goes on.
func (k *campaign) win(mode session.Mode) bool {
	c, q := k.core, k.queue
	now := time.Now()
	c.mu.Lock()
	r := q.first()
	if r == nil || r.own != k.own || r.mode != mode || c.closed {
		c.mu.Unlock()
		if err := k.session.Unlock(q.tag, mode); err != nil && k.own == nil {
			k.leave()
		}
		return false
	}
	defer c.mu.Unlock()
	g := q.grant(k.session, mode, now)
	g.alone = k.own != nil
	g.give(q.pop(), false, now)
	if !g.alone {
		for mode == session.Shared && q.first() != nil && q.first().mode == mode && q.first().own == nil {
			g.give(q.pop(), true, now)
		}
		g.session.Watch(func(err error) { c.lost(err, g) })
	}
	k.endLocked()
	return true
}

// finishOrRun goes on in the background if somebody waits.
func (k *campaign) finishOrRun() {
	c := k.core
	c.mu.Lock()
	if k.wanted() != nil {
		c.mu.Unlock()
		go k.run()
		return
	}
	s := k.session
	k.endLocked()
	c.mu.Unlock()
	if s != nil {
		c.giveBack(s)
	}
}

// end gives the session back and ends the campaign; those who came meanwhile get
// one of their own.
func (k *campaign) end() {
	if k.session != nil && k.own == nil {
		k.leave()
	}
	k.core.mu.Lock()
	defer k.core.mu.Unlock()
	k.endLocked()
}

// endLocked is end under mu. The campaign is not to be used afterwards.
func (k *campaign) endLocked() {
	c, q := k.core, k.queue
	q.campaign = nil
	if k.ended != nil {
		close(k.ended)
	}
	if len(c.spare) < maxSpare {
		*k = campaign{}
		c.spare = append(c.spare, k)
	}
	c.proceed(q)
	c.tidy(q)
	c.wg.Done()
}

// hold makes s the campaign's session.
func (k *campaign) hold(s session.Session) {
	k.core.mu.Lock()
	defer k.core.mu.Unlock()
	k.session, k.tried = s, false
	if k.stopped {
		s.Interrupt() // stop came before it had a session
	}
}

// leave gives the campaign's session back.
func (k *campaign) leave() {
	k.core.mu.Lock()
	s := k.session
	k.session = nil
	k.core.mu.Unlock()
	k.core.giveBack(s)
}

// refuse ends one request with an error.
func (k *campaign) refuse(r *request, err error) { k.core.deny(r, err) }

// deny ends a request that waits with an error.
func (c *core) deny(r *request, err error) {
	err = c.explain(r, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.queue != nil && r.queue.remove(r) {
		r.settle(result{err: err})
		c.proceed(r.queue)
		c.tidy(r.queue)
	}
}

// failAll ends all requests that wait now.
func (k *campaign) failAll(err error) {
	k.core.mu.Lock()
	requests := slices.Clone(k.queue.requests)
	for _, r := range requests {
		r.known = true
	}
	k.core.mu.Unlock()
	for _, r := range requests {
		k.refuse(r, err)
	}
}

// lost gives up a dead session. All that stood idle die when a server restarts,
// so the campaign goes on with others; more deaths than that are reported, and in
// between it does not storm the server.
func (k *campaign) lost(err error) {
	k.leave()
	k.core.mu.Lock()
	k.losses, k.loss = k.losses+1, err
	k.core.mu.Unlock()
	switch {
	case k.losses > k.core.config.MaxConns+3:
		k.failAll(err)
	case k.losses > 2:
		select {
		case <-k.ctx.Done():
		case <-time.After(50*time.Millisecond + rand.N(50*time.Millisecond)):
		}
	}
}
