package leased

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	leaderdriver "github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/leaseerr"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/lease"
)

// together is how many requests are under way at a time: stores commit together what comes together.
const together = 64

var errTooSlow = errors.New("the store is too slow")

// A claiming is one call of Claim.
type claiming struct {
	*session
	key    string          // so that a request that is sent again gets the same lease
	begins context.Context // when it ends, no more requests are begun //nolint:containedctx // of one call

	mu    sync.Mutex
	got   map[string]lease.Claim
	short []lease.Claim // of got, those that may end before the session does
	busy  error         // why some were not asked for; nil = all were
}

// Claim asks for a lease of each name, several at a time. What a store is too busy or too slow for in two thirds
// of ctx's time is left out, like what others own, so that a limit of requests slows claims down and does not stop
// them; it is an error if nothing else was got.
func (s *session) Claim(ctx context.Context, names []string) ([]driver.Grant, error) {
	if err := s.lasts(); err != nil {
		return nil, s.failed("claiming shards", err)
	}
	if len(names) == 0 {
		return nil, nil
	}
	begins, cancel := context.WithCancel(ctx)
	if end, ok := ctx.Deadline(); ok {
		begins, cancel = context.WithTimeoutCause(ctx, time.Until(end)*2/3, errTooSlow)
	}
	defer cancel()
	c := &claiming{session: s, key: rand.Text(), begins: begins, got: map[string]lease.Claim{}}
	err := each(names, 1, func(name string) error { return c.claim(ctx, name) })
	if err == nil && len(c.got) == 0 {
		err = c.busy
	}
	if err == nil {
		err = c.secure(ctx)
	}
	if err == nil && len(c.got) > 0 {
		err = s.note(ctx)
	}
	if err != nil {
		return nil, s.failed("claiming shards", err)
	}
	return c.grants(), nil
}

// grants are those of the leases that have not been lost meanwhile.
func (c *claiming) grants() []driver.Grant {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	grants := make([]driver.Grant, 0, len(c.got))
	for name, claim := range c.got {
		if h, ok := s.held[name]; ok && h.Claim == claim {
			s.held[name] = holding{claim, s.renewals}
			grants = append(grants, driver.Grant{Name: name, Term: leaderdriver.TermOf(claim.Token)})
		}
	}
	return grants
}

// note makes others see that what is owned has changed. That they cannot yet is no error: the
// next Look tries again. That the session has ended is.
func (s *session) note(ctx context.Context) error {
	s.mu.Lock()
	s.changes++
	s.mu.Unlock()
	if err := s.publish(ctx); errors.Is(err, leaderdriver.ErrLost) {
		return err
	}
	return s.lasts()
}

// claim asks for one name.
func (c *claiming) claim(ctx context.Context, name string) error {
	if c.begins.Err() != nil {
		return c.leaveOut(context.Cause(c.begins))
	}
	if err := c.settle(ctx, name); err != nil { // of an earlier claim
		return c.unlessBusy(err)
	}
	l, renewals, err := c.acquire(ctx, c.begins, name, c.key)
	if err != nil {
		return c.unlessBusy(err)
	}
	s := c.session
	s.mu.Lock()
	delete(s.asked, name)
	s.held[name] = holding{l.Claim, unreturned}
	short := s.renewals != renewals || l.Remaining < s.ttl // a renewal began after the request, and does not know of it
	s.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[name] = l.Claim
	if short {
		c.short = append(c.short, l.Claim)
	}
	return nil
}

// unlessBusy is nil for what says that nothing was got: somebody else has it, or the store is busy.
func (c *claiming) unlessBusy(err error) error {
	switch {
	case errors.Is(err, lease.ErrHeld):
		return nil
	case errors.Is(err, lease.ErrBusy):
		return c.leaveOut(err)
	}
	return err
}

// leaveOut notes why a name is not asked for.
func (c *claiming) leaveOut(reason error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = cmp.Or(c.busy, reason)
	return nil
}

// acquire asks for a name until the store is not busy, or begins ends. renewals is how many had begun
// before. Without an answer the request is kept in asked.
func (s *session) acquire(ctx, begins context.Context, name, key string) (l lease.Lease, renewals uint64, err error) {
	s.mu.Lock()
	renewals = s.renewals
	_, before := s.asked[name]
	s.asked[name] = key
	request := lease.AcquireRequest{
		Name: s.config.shard(name), Holder: s.identity, TTL: s.ttl, IdempotencyKey: key, Metadata: map[string]string{metaSession: s.id},
	}
	s.mu.Unlock()
	err = again(begins, func() error {
		l, err = s.store.Acquire(ctx, request)
		for errors.Is(err, lease.ErrBusy) && s.renewing.Load() > 0 && begins.Err() == nil {
			_ = pause.For(begins, 4*shortestRetry) // what is owned goes before what could be
		}
		return err
	})
	if errors.Is(err, lease.ErrHeld) || !before && leaseerr.NothingDone(err) {
		s.mu.Lock()
		delete(s.asked, name)
		s.mu.Unlock()
	}
	return l, renewals, err
}

// secure renews what may end before the session does.
func (c *claiming) secure(ctx context.Context) error {
	if len(c.short) == 0 {
		return nil
	}
	gone, err := c.prolong(ctx, c.short)
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	for name, claim := range c.got {
		if gone[claim.Name] {
			delete(c.got, name)
			delete(c.held, name)
		}
	}
	return err
}

// Release releases the leases of names, several at a time.
func (s *session) Release(ctx context.Context, names []string) error {
	s.mu.Lock()
	var mine []string
	for _, name := range names {
		if h, ok := s.held[name]; ok {
			delete(s.held, name)
			s.given[name] = h.Claim
		}
		_, given := s.given[name]
		_, asked := s.asked[name]
		if given || asked {
			mine = append(mine, name)
		}
	}
	over := s.over
	s.mu.Unlock()
	if len(mine) == 0 {
		return nil
	}
	err := s.releaseAll(ctx, mine)
	if over == nil {
		_ = s.note(ctx) // that the session has ended says Renew
	}
	s.tell(ctx)
	if err != nil {
		return s.failed("releasing shards", err)
	}
	return nil
}

// releaseAll settles names. If some cannot be it goes on with others, unless there are many.
func (s *session) releaseAll(ctx context.Context, names []string) error {
	return each(names, together, func(name string) error { return s.settle(ctx, name) })
}

// settle makes sure that nothing is held of a name that is not owned. On failure that is as
// unknown as before.
func (s *session) settle(ctx context.Context, name string) error {
	s.mu.Lock()
	key, asked := s.asked[name]
	s.mu.Unlock()
	if asked { // by its key the request gets again what it got
		l, _, err := s.acquire(ctx, ctx, name, key)
		switch {
		case errors.Is(err, lease.ErrHeld):
		case err != nil:
			return err
		default:
			s.mu.Lock()
			delete(s.asked, name)
			s.given[name] = l.Claim
			s.mu.Unlock()
		}
	}
	s.mu.Lock()
	claim, given := s.given[name]
	s.mu.Unlock()
	if !given {
		return nil
	}
	if err := ended(again(ctx, func() error { return s.store.Release(ctx, claim) })); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.given, name)
	s.mu.Unlock()
	return nil
}

// each calls f with all names, some at a time, and returns the first error. After so many errors it
// begins no more.
func each(names []string, errs int64, f func(string) error) error {
	var next, failed atomic.Int64
	var first error
	var once sync.Once
	var wg sync.WaitGroup
	for range min(together, len(names)) {
		wg.Go(func() {
			for failed.Load() < errs {
				i := next.Add(1) - 1
				if i >= int64(len(names)) {
					return
				}
				if err := f(names[i]); err != nil {
					failed.Add(1)
					once.Do(func() { first = err })
				}
			}
		})
	}
	wg.Wait()
	return first
}
