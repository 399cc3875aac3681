package leader

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

// An activeTerm is one term in which this node leads or is about to lead. It has one number and one context.
type activeTerm struct {
	term   Term
	began  time.Time
	trust  time.Duration // how long a good renewal is valid, from its start
	ctx    *termContext
	cancel context.CancelCauseFunc
	until  boottime.Deadline       // deadline set by the last good renewal
	clean  bool                    // the previous leader ended in good order
	gone   <-chan struct{}         // closed when the backend detects a loss; nil = it does not report losses
	lost   func(cause error) error // makes a LostError

	keeper context.CancelFunc // ends the keeper
	kept   chan struct{}      // closed when the keeper has ended
	health chan error         // outcomes of renewals
	loss   chan error         // receives at most one value: leadership is gone
}

// renew moves the deadline to trust after from. It returns false if the previous deadline has passed, because
// others may already have acted on that.
func (t *activeTerm) renew(from boottime.Moment) bool { return t.until.Extend(from.Add(t.trust)) }

// alive reports whether the last good renewal can still be trusted. Once false, it stays false.
func (t *activeTerm) alive() bool { return !t.until.Passed() }

// left returns how long it can still be trusted.
func (t *activeTerm) left() time.Duration { return t.until.Moment().Until() }

// end cancels the context; the first cause stays.
func (t *activeTerm) end(cause error) { t.cancel(cause) }

// errExpired is the cause of a loss that the backend did not report.
var errExpired = errors.New("no renewal succeeded in time")

// A termContext is the leader's context.
type termContext struct {
	context.Context
	active *activeTerm
}

// Err checks the clock: after a pause, a process must not act before its timers have run.
func (c *termContext) Err() error {
	if c.Context.Err() == nil && !c.active.alive() {
		c.active.end(c.active.lost(errExpired))
	}
	return c.Context.Err()
}

// newTerm begins a term in which this node does not lead yet. from is the start of the attempt or renewal
// that proved the leadership.
func (e *Elector) newTerm(l *lifecycle, from boottime.Moment) *activeTerm {
	t := &activeTerm{
		began: time.Now(), trust: e.config.trust(), kept: make(chan struct{}),
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
	ctx, t.cancel = context.WithCancelCause(ctx)
	t.ctx = &termContext{Context: ctx, active: t}
	t.until.Set(from.Add(t.trust))
	keeping, stop := context.WithCancel(context.Background())
	t.keeper = stop
	go e.keep(keeping, t)
	return t
}

// close ends the keeper and waits for it. From then on the lifecycle goroutine owns the backend again.
func (t *activeTerm) close() {
	t.keeper()
	<-t.kept
}
