package leader

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/renew"
)

// An activeTerm is one term in which this node leads or is about to lead. It has one number and one context.
type activeTerm struct {
	term   Term
	began  time.Time
	trust  time.Duration // how long a good renewal is valid, from its start
	ctx    *boottime.Context
	cancel context.CancelCauseFunc
	until  boottime.Deadline       // deadline set by the last good renewal
	clean  bool                    // the previous leader ended in good order
	gone   <-chan struct{}         // closed when the backend detects a loss; nil = it does not report losses
	lost   func(cause error) error // makes a LostError

	keeper context.CancelFunc // ends the keeper
	kept   chan struct{}      // closed when the keeper has ended
	health chan error         // outcomes of renewals
	loss   chan error         // receives at most one value: leadership is gone

	slowest atomic.Int64 // the longest time.Duration of a renewal that has ended
}

// alive reports whether the last good renewal can still be trusted. Once false, it stays false.
func (t *activeTerm) alive() bool { return !t.until.Passed() }

// end cancels the context; the first cause stays.
func (t *activeTerm) end(cause error) { t.cancel(cause) }

// expired ends the term if it can no longer be trusted, and returns the cause of its end.
func (t *activeTerm) expired() error {
	if t.alive() {
		return nil
	}
	t.end(t.lost(renew.ErrExpired))
	return context.Cause(t.ctx)
}

// newTerm begins a term in which this node does not lead yet. from is the start of the attempt or renewal
// that proved the leadership.
func (e *Elector) newTerm(l *lifecycle, from boottime.Moment) *activeTerm {
	t := &activeTerm{
		began: time.Now(), trust: e.config.times().Trust(), kept: make(chan struct{}),
		health: make(chan error, 1), loss: make(chan error, 1),
	}
	if e.termer != nil {
		t.term = e.termer.Term()
	}
	if e.clean != nil {
		t.clean = e.clean.CleanStart()
	}
	if e.losses != nil {
		t.gone = e.losses.Lost()
	}
	t.lost = func(cause error) error {
		return &LostError{Election: e.config.Name, Term: t.term, Held: time.Since(t.began), Cause: cause}
	}
	ctx := context.WithValue(l.ctx, termKey{}, t.term)
	if e.binder != nil {
		ctx = e.binder.Bind(ctx)
	}
	t.ctx, t.cancel = boottime.NewContext(ctx, t.expired)
	t.until.Set(from.Add(t.trust))
	keeping, stop := context.WithCancel(context.Background())
	t.keeper = stop
	go e.keep(keeping, t, from)
	return t
}

// close ends the keeper and waits for it. From then on the lifecycle goroutine owns the backend again.
func (t *activeTerm) close() {
	t.keeper()
	<-t.kept
}
