package shards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards/driver"
)

// A slot is the place of one session. Its sessions follow each other.
type slot struct {
	opening  bool
	opens    time.Time // earliest time to open the next session
	comeback renew.Comeback
}

// newSlots returns the slots of a node that has no session.
func (n *Node) newSlots() []slot {
	all := make([]slot, len(n.sessions))
	for i := range all {
		all[i].comeback = n.comeback
	}
	return all
}

// open opens the missing sessions.
func (r *run) open() {
	if r.shards == nil {
		return
	}
	now := time.Now()
	for i := range r.slots {
		if r.at(i) != nil || r.slots[i].opening || now.Before(r.slots[i].opens) {
			continue
		}
		r.slots[i].opening, r.refusal = true, nil
		self := r.self()
		r.call(r.ctx, r.openTimeout(), func(ctx context.Context) func() {
			s, from, err := r.config.open(ctx, self)
			return func() { r.opened(i, s, err, self, from) }
		})
	}
}

// openTimeout bounds an attempt to open a session. After one that took too long the next one has twice the time, up to
// LeaseDuration. With a fixed bound, nodes that all open sessions on a busy server would never get one.
func (r *run) openTimeout() time.Duration {
	timeout := r.config.RenewTimeout
	for range r.slow {
		timeout = min(2*timeout, max(timeout, r.config.LeaseDuration))
	}
	return timeout
}

// open opens a session, which lasts from the returned moment. If that took so long that little of the lease is left,
// it renews the session at once.
func (c Config) open(ctx context.Context, self driver.Member) (driver.Session, boottime.Moment, error) {
	from := boottime.Present()
	s, err := c.Backend.Open(ctx, self, c.LeaseDuration)
	if err != nil || from.Since() <= c.RenewTimeout {
		return s, from, err
	}
	from = boottime.Present()
	if _, err := s.Renew(ctx, c.LeaseDuration); err != nil {
		_ = s.Close() // the session owns nothing
		return nil, from, err
	}
	return s, from, nil
}

// opened handles the result of opening a session.
func (r *run) opened(i int, s driver.Session, err error, self driver.Member, from boottime.Moment) {
	slot := &r.slots[i]
	slot.opening = false
	if err != nil {
		wait := pause.Jitter(r.config.LookInterval, 0.2)
		if errors.Is(err, context.DeadlineExceeded) {
			r.slow = min(r.slow+1, 8)
			wait = max(wait, slot.comeback.Failed())
		} else {
			r.slow = 0
		}
		slot.opens = time.Now().Add(wait)
		if r.ctx.Err() != nil {
			return
		}
		r.outcome("opening a session", err)
		if errors.Is(err, leader.ErrPermanent) {
			r.refusal = err
		}
		return
	}
	r.slow = 0
	r.outcome("opening a session", nil)
	o := r.newSession(s, self, from)
	r.mu.Lock()
	r.sessions[i] = o
	r.mu.Unlock()
	r.log.Info("a session was opened", slog.Int("session", i))
	r.looks = time.Now()
	if r.joined.IsZero() {
		r.joined = r.looks
	}
}

func (r *run) at(i int) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[i]
}

// lasting returns the sessions that carry shards now.
func (r *run) lasting() (all []*session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.sessions {
		if o != nil && o.lasts() {
			all = append(all, o)
		}
	}
	return all
}

// vacated handles the end of a lost session. If sessions of its slot keep ending early, the next one waits. If the
// reason is that the backend is slow, that is reported.
func (r *run) vacated(i int, o *session) {
	slot := &r.slots[i]
	slot.opens = o.ended.Add(slot.comeback.Lost(o.ended.Sub(o.began)))
	if slot.comeback.Early() < 2 || o.slowest < r.config.RenewTimeout/2 {
		return
	}
	slow := &renew.SlowError{Took: o.slowest, Duration: r.config.LeaseDuration}
	r.note(Event{Kind: EventError, Err: fmt.Errorf("shards: %s: sessions keep ending early: %w", r.config.Name, slow)})
}
