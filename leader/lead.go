package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/renew"
)

// lead waits until leadership ends or a renewal reports its outcome.
func (d *drive) lead() input {
	t, r := d.active, d.lifecycle.leadership
	select {
	case err := <-t.loss:
		return d.lose(t, err)
	default: // a loss takes precedence over a request: it has already happened
	}
	select {
	case err := <-t.loss:
		return d.lose(t, err)
	case <-r.quit.Done():
		d.err, d.resigned = nil, nil
		if d.lifecycle.quit.Err() != nil {
			return stop
		}
		if why, ok := errors.AsType[*resignation](context.Cause(r.quit)); ok {
			d.err, d.resigned = why.reason, why.reason
		}
		return stepDown
	case err := <-t.health:
		if d.err = err; err != nil {
			return renewFailed
		}
		return renewed
	}
}

func renewError(err error) error { return &failure{"renewing", err} }

// lose handles a loss. Unless the backend is certain of the loss, the server may keep others out for a while.
// Work gets that time to end.
func (d *drive) lose(t *activeTerm, cause error) input {
	d.why = t.lost(d.rests(t, cause))
	d.err = d.why
	if !errors.Is(cause, ErrLost) && d.config.LossDrain > 0 {
		d.awaitWork(d.config.LossDrain, d.lifecycle.leadership.force.Done(), t.gone)
	}
	return lost
}

// rests sets the pause after a loss. If terms keep ending early because renewals are not answered in time, attempts
// at once would keep the backend slow. rests returns cause, with the remedy in that case.
func (d *drive) rests(t *activeTerm, cause error) error {
	lasted := time.Since(t.began)
	if errors.Is(cause, ErrLost) { // the backend answers
		d.comeback.Lasted(lasted)
		return cause
	}
	d.rest = d.comeback.Lost(lasted)
	took := time.Duration(t.slowest.Load())
	if d.comeback.Early() < 2 || took < d.config.RenewTimeout/2 {
		return cause
	}
	return fmt.Errorf("%w: terms keep ending early: %w", cause, &renew.SlowError{Took: took, Duration: d.config.LeaseDuration})
}

// release waits for work to end and then gives up leadership.
func (d *drive) release() input {
	t, r := d.active, d.lifecycle.leadership
	d.err = nil
	drained := d.awaitWork(d.config.DrainTimeout, r.force.Done(), t.kept) || d.overrun(t.kept)
	defer d.occupied()()
	t.close()
	if d.lifecycle.quit.Err() != nil && !d.at.Stopping {
		d.take(stop) // the request came during the step-down
	}
	select {
	case err := <-t.loss:
		return d.lose(t, err)
	default:
	}
	if !t.alive() { // no timer has run yet
		return d.lose(t, renew.ErrExpired)
	}
	d.comeback.Lasted(time.Since(t.began))
	d.dropTerm()
	if !drained {
		// The end is not orderly, and a successor must be able to detect that.
		d.err = d.drainExceeded()
		if d.closer != nil {
			d.closeNow()
			return released
		}
	}
	force := r.force
	if d.closer == nil {
		force = context.Background() // the backend cannot be closed
	}
	if err := d.releaseBackend(force); err != nil {
		d.log.Warn("release failed: leadership ends by its lease", slog.Any("error", err))
		d.err = errors.Join(d.err, &failure{"releasing", err})
		return releaseFailed
	}
	return released
}

func (d *drive) drainExceeded() error {
	return fmt.Errorf("leader: %s: %w", d.config.Name, ErrDrainExceeded)
}

// overrun handles work that exceeded DrainTimeout, or leadership that was lost or dropped meanwhile. It
// returns true if the work ended after all.
func (d *drive) overrun(gone <-chan struct{}) bool {
	r := d.lifecycle.leadership
	select {
	case <-gone:
		return false
	case <-r.force.Done():
		return false
	default:
	}
	log := d.log.With(slog.Duration("drain_timeout", d.config.DrainTimeout))
	if !d.config.KeepUntilDrained {
		log.Warn("work did not end: a successor may overlap with it")
		return false
	}
	log.Warn("work did not end: keeping leadership until it does")
	d.emit(Event{Kind: EventError, Err: d.drainExceeded()})
	return d.awaitWork(0, r.force.Done(), gone)
}
