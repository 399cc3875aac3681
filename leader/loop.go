package leader

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/leader/backoff"
)

// A drive is the state of the lifecycle goroutine from Start to Stopped.
type drive struct {
	*Elector
	lifecycle *lifecycle
	at        position

	active *activeTerm // current or about to begin; nil = no term that is being renewed
	err    error       // error of the last input
	why    error       // reason of the last loss
	grace  time.Time   // end of Reconnecting

	took      int       // number of attempts that the last success took
	attempts  int       // since Start or resetRetry
	first     time.Time // start of the first of these attempts
	lastDelay time.Duration
	next      time.Time // when the next attempt is due; zero = at once
	comeback  renew.Comeback
	rest      time.Duration // after the last loss, before the next attempt
	pending   bool          // the last attempt is not finished and continues
	tried     time.Time     // start of the last attempt
	rushed    int           // consecutive attempts that came soon after the one before
	aside     bool          // stands aside, and has not yet checked whether another candidate waits
	waitable  bool          // the last attempt found another leader: the backend may wait for its end
	unsettled bool          // an attempt succeeded, but a predecessor's work may still run
	exhausted bool
	stood     bool      // this node has led, or followed for a lease
	followed  time.Time // since when every attempt was refused; zero = the last one was not
	reason    trouble   // why the last attempts failed
	resigned  error     // why a service gave up leadership
}

// live is the body of the lifecycle goroutine.
func (e *Elector) live(l *lifecycle) {
	d := &drive{Elector: e, lifecycle: l, comeback: e.comeback}
	leave := func() {}
	if e.shows != nil {
		leave = e.shows.Introspect(candidate{e})
	}
	d.take(start)
	for d.at.State != Stopped {
		d.take(d.await())
	}
	leave()
	e.busy.Store(0)
	e.mu.Lock()
	defer e.mu.Unlock()
	close(l.done)
	e.notifyLocked()
}

// await runs the present state until an input arrives.
func (d *drive) await() input {
	switch d.at.State {
	case Follower:
		return d.follow()
	case Acquiring:
		return d.acquire()
	case Leader:
		return d.lead()
	case Reconnecting:
		return d.reconnect()
	case Releasing:
		return d.release()
	}
	panic(fmt.Sprintf("BUG: nothing to do in state %v", d.at.State))
}

// take makes one transition: effects first, then the state, then observers.
func (d *drive) take(in input) {
	from := d.at.State
	to, actions := transitions.step(d.at, in, d.config.rules())
	defer d.occupied()()
	for _, a := range actions {
		d.effect(a)
	}
	d.at = to
	d.state.Store(uint32(to.State))
	if to.State == Stopped {
		d.lifecycle.err = d.gaveUp(from, in)
		d.lifecycle.stop() // a later Start waits for the end of this lifecycle
	}
	if from == Acquiring && to.State != Stopped {
		d.lifecycle.decide()
	}
	if from != to.State {
		d.log.LogAttrs(context.Background(), levelOf(from, to.State), "state_change",
			slog.Group("state", slog.String("from", from.String()), slog.String("to", to.State.String())))
		d.emit(Event{Kind: EventStateChange, From: from, To: to.State})
	}
	for _, a := range actions {
		d.observe(a)
	}
}

// occupied marks the goroutine as busy until the returned function is called.
func (d *drive) occupied() (free func()) {
	before := d.busy.Swap(int64(boottime.Now()))
	return func() { d.busy.Store(before) }
}

// gaveUp returns why the node stops; nil if a caller requested the stop.
func (d *drive) gaveUp(from State, in input) error {
	why := d.err
	if from == Releasing {
		why = d.resigned
	}
	asked := d.lifecycle.quit.Err() != nil || in == stepDown || from == Releasing && why == nil
	switch {
	case asked:
		return nil
	case in == hopeless:
		return &hopelessError{d.config.Name, why}
	case why == nil:
		return fmt.Errorf("leader: %s: %w", d.config.Name, ErrGaveUp)
	}
	return fmt.Errorf("leader: %s: %w: %w", d.config.Name, ErrGaveUp, why)
}

// levelOf returns the log level of a transition. A follower's endless attempts are logged at Debug.
func levelOf(from, to State) slog.Level {
	if from == Follower && to == Acquiring || from == Acquiring && to == Follower {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// effect applies an action to the node itself.
func (d *drive) effect(a action) {
	switch a {
	case beginTerm:
		d.beginTerm()
	case endTerm:
		d.endTerm()
	case abandon:
		d.dropTerm()
		d.pending = false
		if d.unsettled && d.closer != nil {
			// A release would tell the successor that everything before it ended in good order.
			d.unsettled = false
			d.closeNow()
			return
		}
		_ = d.releaseBackend(context.Background()) // best effort: what it fails to release ends with its lease
	case closeBackend:
		d.dropTerm()
		d.closeNow()
	case startGrace:
		d.log.Warn("leadership is interrupted", slog.String("term", d.lastTerm.String()), slog.Any("error", d.why))
		d.grace = time.Now().Add(d.config.ReconnectGrace)
	case resetRetry:
		d.attempts, d.lastDelay, d.exhausted = 0, 0, false
		d.next, d.rest = time.Now().Add(d.rest), 0
	case backOff:
		d.backOff()
	case standAside:
		delay, _ := d.config.Retry.NextDelay(backoff.Retry{Attempt: 1})
		d.attempts, d.lastDelay, d.exhausted = 0, 0, false
		d.next, d.waitable = time.Now().Add(max(delay, minStandAside)), false
		d.aside = d.contest != nil
	}
}

// observe sends the events of an action.
func (d *drive) observe(a action) {
	switch a {
	case emitAcquired:
		d.log.Info("lock_acquired", slog.String("term", d.lastTerm.String()), slog.Int("attempt", d.took))
		d.emit(Event{Kind: EventAcquired, Term: d.lastTerm})
		d.sees(sighting{d.self(d.active), true, time.Now()})
	case emitRecovered:
		d.log.Info("leadership recovered", slog.String("term", d.lastTerm.String()))
		d.emit(Event{Kind: EventRecovered, Term: d.lastTerm})
	case emitReleased:
		d.endLeadership(Event{Kind: EventReleased, Term: d.lastTerm, Err: d.err})
	case emitLost:
		d.log.Warn("leadership lost", slog.String("term", d.lastTerm.String()), slog.Any("error", d.why))
		d.endLeadership(Event{Kind: EventLost, Term: d.lastTerm, Err: d.why})
	case emitAcquireFailed:
		d.emit(Event{Kind: EventAcquireFailed, Attempt: d.attempts, Err: d.err})
	case emitError:
		if d.err != nil {
			d.emit(Event{Kind: EventError, Err: d.err})
		}
	case emitStopped:
		d.emit(Event{Kind: EventStopped, Err: d.lifecycle.err})
	}
}

// beginTerm makes the term current and its context available to callers.
func (d *drive) beginTerm() {
	t := d.active
	d.lastTerm, d.took, d.err = t.term, d.attempts, nil
	d.preferred.Store(nil) // a preference is for one election only
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lifecycle.leadership == nil {
		r := &leadership{done: make(chan struct{})}
		r.quit, r.stepDown = context.WithCancelCause(d.lifecycle.quit)
		r.force, r.hurry = context.WithCancel(context.Background())
		d.lifecycle.leadership = r
	}
	d.current.Store(t)
	d.notifyLocked()
}

// endTerm ends the leader's context, unless a loss has already ended it.
func (d *drive) endTerm() {
	_ = d.active.ctx.Err() // Err may detect a loss before any timer does
	d.active.end(fmt.Errorf("leader: %s: %w", d.config.Name, ErrReleased))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.current.Store(nil)
	d.notifyLocked()
}

// endLeadership reports the end of a leadership, once, and lets StepDown return.
func (d *drive) endLeadership(event Event) {
	d.mu.Lock()
	r := d.lifecycle.leadership
	d.lifecycle.leadership = nil
	d.mu.Unlock()
	r.stepDown(nil)
	r.hurry()
	d.sees(sighting{at: time.Now()})
	d.emit(event)
	close(r.done)
}

// dropTerm ends the renewals, so that this goroutine owns the backend again.
func (d *drive) dropTerm() {
	if d.active == nil {
		return
	}
	d.active.close()
	d.active.end(ErrNotLeader) // applies if the term never led
	d.active = nil
}

// releaseBackend releases everything that the backend may hold. Only force cuts it short, not a request to
// stop.
func (d *drive) releaseBackend(force context.Context) error {
	ctx, cancel := context.WithTimeout(force, d.config.RenewTimeout)
	defer cancel()
	return d.backend.Release(ctx, d.config.Identity)
}

func (d *drive) closeNow() {
	if d.closer == nil {
		return
	}
	if err := d.closer.Close(); err != nil {
		d.log.Debug("closing the backend", slog.Any("error", err))
	}
}

// backOff asks the retry strategy for the delay before the next attempt.
func (d *drive) backOff() {
	delay, ok := d.config.Retry.NextDelay(backoff.Retry{Attempt: d.attempts, Elapsed: time.Since(d.first), Last: d.lastDelay, Err: d.err})
	d.lastDelay, d.exhausted = delay, !ok
	d.next = time.Now().Add(delay)
}
